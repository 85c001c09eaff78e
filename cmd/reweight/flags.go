package main

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/scheme"
)

// rolloutFlags declares the flags that say what files of rollouts do not say
// themselves.
func rolloutFlags(f cli.Flags) func() (rollout.Options, error) {
	open := f.String("action-open", "", "token `ids` of the tag before an action, with commas between them, also for files that have roles")
	closing := f.String("action-close", "", "token `ids` of the tag after an action, with commas between them")
	tags := f.String("action-tags", "", "`texts` of the tags before and after an action, with a comma between them, for files that have the texts of tokens")
	groupSize := f.Int("group-size", 0, "every `n` trajectories in a row are a group (default: the groups of the files, or equal prompts)")
	vocab := f.Int("vocab", 0, "`tokens` of the vocabulary: bounds the entropy where a file has only the most likely tokens")
	surprisal := f.Bool("surprisal-entropy", false, "let -old_logprobs stand for the entropy where a file says nothing else about it: an estimate without bounds")
	return func() (opt rollout.Options, err error) {
		if f.Given("action-open") != f.Given("action-close") {
			return opt, errors.New("-action-open and -action-close go together: give both")
		}
		for _, tag := range [...]struct {
			flag, list string
			ids        *[]int32
		}{{"action-open", *open, &opt.ActionOpen}, {"action-close", *closing, &opt.ActionClose}} {
			if !f.Given(tag.flag) {
				continue
			}
			for text := range strings.SplitSeq(tag.list, ",") {
				id, err := strconv.ParseInt(text, 10, 32)
				if err != nil || id < 0 {
					return opt, fmt.Errorf("-%s has %q, want token ids of 0 to %d", tag.flag, text, math.MaxInt32)
				}
				*tag.ids = append(*tag.ids, int32(id))
			}
		}
		if f.Given("action-tags") {
			before, after, found := strings.Cut(*tags, ",")
			if !found || before == "" || after == "" || strings.Contains(after, ",") {
				return opt, fmt.Errorf("-action-tags is %q, want two texts with a comma between them, such as <answer>,</answer>", *tags)
			}
			opt.ActionTags = [2]string{before, after}
		}
		for _, n := range [...]struct {
			flag  string
			value int
		}{{"group-size", *groupSize}, {"vocab", *vocab}} {
			if f.Given(n.flag) && (n.value < 1 || n.value > math.MaxInt32) {
				return opt, fmt.Errorf("-%s is %d, want 1 to %d", n.flag, n.value, math.MaxInt32)
			}
		}
		opt.GroupSize, opt.Vocab, opt.SurprisalEntropy = *groupSize, *vocab, *surprisal
		return opt, nil
	}
}

// named returns an error about an argument (a *reweight.InputError) as the sentence
// that names the argument as the user of a command does: by its flag. Other errors stay as they are.
func named(err error) error {
	var input *reweight.InputError
	if !errors.As(err, &input) {
		return err
	}
	name, ok := flagNames[input.Arg]
	if !ok {
		name = input.Arg
	}
	return errors.New(input.Sentence(name))
}

// flagNames maps the names of options to the flags that set them: the first that do.
var flagNames = func() map[string]string {
	names := map[string]string{}
	for _, e := range scheme.Entries() {
		for _, f := range e.Flags {
			names[f.Option] = cmp.Or(names[f.Option], "-"+f.Name)
		}
	}
	return names
}()

// schemeFlags declares the flags of these entries of the catalogue. Their values are in opt once
// the function that it returns has returned, with the defaults of the entries where they are not
// given.
func schemeFlags(flags cli.Flags, opt *scheme.Options, entries ...string) func() error {
	*opt = scheme.MustParse("uniform").Options
	type enumeration interface {
		encoding.TextUnmarshaler
		fmt.Stringer
	}
	type given struct {
		value enumeration
		text  *string
	}
	var names []given
	for _, name := range entries {
		e := entry(name)
		for _, f := range e.Flags {
			switch x := option(e, opt, f).Addr().Interface().(type) {
			case *float64:
				flags.Float64Var(x, f.Name, *x, f.Help)
			case *int:
				flags.IntVar(x, f.Name, *x, f.Help)
			case *bool:
				flags.BoolVar(x, f.Name, *x, f.Help)
			case enumeration:
				names = append(names, given{x, flags.String(f.Name, x.String(), f.Help)})
			}
		}
	}
	return func() error {
		for _, n := range names {
			if err := n.value.UnmarshalText([]byte(*n.text)); err != nil {
				return named(err)
			}
		}
		return nil
	}
}

// entry returns the entry of the catalogue of that name.
func entry(name string) *scheme.Entry {
	e, err := scheme.Find(name)
	if err != nil {
		panic(err)
	}
	return e
}

// option returns the field of the options that a flag of the entry sets.
func option(e *scheme.Entry, opt *scheme.Options, f scheme.Flag) reflect.Value {
	return reflect.ValueOf(e.Part(opt)).Elem().FieldByName(f.Option)
}

// setGiven sets the options of the entry to those of another place whose flags are given.
func setGiven(e *scheme.Entry, to, from *scheme.Options, flags cli.Flags) {
	for _, f := range e.Flags {
		if flags.Given(f.Name) {
			option(e, to, f).Set(option(e, from, f))
		}
	}
}
