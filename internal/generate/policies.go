package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/problem"
	"github.com/seed621a2839/reweight/native"
	"github.com/seed621a2839/reweight/scheme"
)

// constants yields the constants of a policy that C has, too. The other ones, of which there is
// the divergence of DPPO, are in the policy's name.
func constants(p reweight.Policy) (all []reflect.StructField) {
	for f := range reflect.TypeOf(p).Fields() {
		if _, ok := cStruct("reweight_loss_options").FieldByName(problem.Snake(f.Name)); ok {
			all = append(all, f)
		}
	}
	return all
}

// policyClass returns the class of Python for a policy loss: GSPO, DPPOTV.
func policyClass(p reweight.Policy) string {
	name, all := reflect.TypeOf(p).Name(), constants(p)
	for f, v := range reflect.ValueOf(p).Fields() {
		if !slices.ContainsFunc(all, func(c reflect.StructField) bool { return c.Name == f.Name }) {
			name += strings.ToUpper(fmt.Sprint(v.Interface()))
		}
	}
	return name
}

// policyCall returns a policy as Python makes it.
func policyCall(p reweight.Policy) string {
	var all []string
	for _, f := range constants(p) {
		all = append(all, python.name(f.Name)+"="+constant(reflect.ValueOf(p).FieldByName(f.Name)))
	}
	return policyClass(p) + "(" + strings.Join(all, ", ") + ")"
}

// constant returns the value of a constant in Python, a float of which has a point.
func constant(v reflect.Value) string {
	text := python.value("", v)
	if v.Kind() == reflect.Float64 && !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return text
}

// wordsOfPolicies replaces the names of Go in the comments of policy losses.
func wordsOfPolicies() func(text string) string {
	names := map[string]string{"nil": "None", "Aggregation": "the aggregation"}
	for a := reweight.TokenMean; a <= reweight.SeqMeanTokenSumNorm; a++ {
		names[strings.ReplaceAll(title(a.String()), "_", "")] = fmt.Sprintf("%q", a.String())
	}
	for _, e := range native.Losses() {
		p := native.PolicyOf(e)
		for _, f := range constants(p) {
			names[f.Name] = python.name(f.Name)
		}
		if d, ok := p.(reweight.DPPO); ok {
			names["Divergence"+strings.ToUpper(d.Divergence.String())] = policyClass(p)
		}
	}
	return func(text string) string {
		return aWord.ReplaceAllStringFunc(text, func(word string) string {
			if to, ok := names[word]; ok {
				return to
			}
			return word
		})
	}
}

// title returns words with underscores between them, each with a capital.
func title(text string) string {
	return firstLetters.ReplaceAllStringFunc(text, strings.ToUpper)
}

// policyNames returns the classes as the elements of a list.
func policyNames() string {
	var all []string
	for _, e := range native.Losses() {
		all = append(all, policyClass(native.PolicyOf(e)))
	}
	return quoted(all)
}

// pythonPolicies returns _policies.py.
func pythonPolicies(src *source) (string, error) {
	docs, err := goDocs(src.module)
	if err != nil {
		return "", err
	}
	words := wordsOfPolicies()
	var out strings.Builder
	out.WriteString(`"""The losses of a policy, a class for each: ` + "`go generate ./...`" + ` writes this file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Dict, Type

__all__ = ["Policy", ` + policyNames() + `]


@dataclass(frozen=True)
class Policy:
    """The loss of a policy with its constants: the loss l of a token that reweight.loss aggregates, and its
    derivative l' by the token's log-probability. Those that there are have their formulas, with these names:

        A      the advantage
        d      log pi - log pi_old, kept between -20 and 20
        rho    e^d
        clip   kept between 1 - clip_low and 1 + clip_high

    Where l' has rho in it, l' is 0 where d is not log pi - log pi_old. A factor of A other than these ratios is a
    constant to the derivative, so that a clipped token still has one, and the value of a loss with log pi in it means
    nothing by itself.

    GMPO, DRO, ClipCov and KLCov have no weights of tokens: a factor of A or a weight of a token would mean something
    else in them than in the others, so that weights are an error.
    """

    name: ClassVar[str] = ""
`)
	var all []string
	for _, e := range native.Losses() {
		p := native.PolicyOf(e)
		class := policyClass(p)
		all = append(all, fmt.Sprintf("%q: %s", p.String(), class))
		text := strings.ReplaceAll(strings.ReplaceAll(wrap(words(docs["type "+reflect.TypeOf(p).Name()]), 110), "\n\t",
			"\n    "), "\t", "    ")
		var comments, fields strings.Builder
		for _, f := range constants(p) {
			v := reflect.ValueOf(p).FieldByName(f.Name)
			comment := words(docs[reflect.TypeOf(p).Name()+"."+f.Name])
			kind, value := "float", " = "+constant(v)
			switch f.Type.Kind() {
			case reflect.Uint8:
				kind = "str"
				comment += ": " + quoted(native.Names(problem.Argument{C: problem.Snake(f.Name)}))
			case reflect.Uint64:
				kind = "int"
			}
			if f.Name == e.NoDefault {
				value = ""
				comment += "; it has no default"
			}
			fmt.Fprintf(&comments, "    %s: %s.\n", python.name(f.Name), comment)
			fmt.Fprintf(&fields, "    %s: %s%s\n", python.name(f.Name), kind, value)
		}
		fmt.Fprintf(&out, "\n\n@dataclass(frozen=True)\nclass %s(Policy):\n    \"\"\"%s\n", class,
			strings.ReplaceAll(strings.ReplaceAll(text, "\n", "\n    "), "\n    \n", "\n\n"))
		if comments.Len() > 0 {
			fmt.Fprintf(&out, "\n%s", comments.String())
		}
		fmt.Fprintf(&out, "    \"\"\"\n\n    name: ClassVar[str] = %q\n%s", p.String(), fields.String())
	}
	fmt.Fprintf(&out, "\n\nPOLICIES: Dict[str, Type[Policy]] = {\n    %s,\n}\n\"\"\"Those that there are, by their names.\"\"\"\n", strings.Join(all, ",\n    "))
	return out.String(), nil
}

// lossDefaults returns the options of a loss as the dictionary of Python has them, without a
// policy that has no default.
func lossDefaults(e *scheme.Entry) string {
	var all []string
	for name, v := range reflect.ValueOf(e.Defaults().Loss).Fields() {
		switch p := v.Interface().(type) {
		case reweight.Policy:
			if e.NoDefault == "" {
				all = append(all, "\"policy\": _policies."+policyCall(p))
			}
		default:
			if !v.IsZero() || name.Name == "Aggregation" {
				all = append(all, fmt.Sprintf("%q: %s", python.name(name.Name), python.value("", v)))
			}
		}
	}
	return strings.Join(all, ", ")
}
