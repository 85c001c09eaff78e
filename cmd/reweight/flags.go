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
	tags := f.String("action-tags", "", "`texts` of the tags before and after an action, with a comma between them, or names of presets: answer, tool_call, json, react, boxed, code, with + between them")
	vocabulary := f.String("vocab-file", "", "the texts of the tokens, where files have none: a JSON list, or the tokenizer.json or vocab.json of a model; a `file`")
	tagsAs := f.String("tags-as", "reasoning", "tokens that hold a part of a tag are `action` or reasoning")
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
			if opt.ActionTags, err = rollout.ParseTags(*tags); err != nil {
				return opt, fmt.Errorf("-action-tags %w", err)
			}
		}
		if err := f.NotEmpty("vocab-file"); err != nil {
			return opt, err
		}
		if *vocabulary != "" {
			if opt.Vocabulary, err = rollout.ReadVocabulary(*vocabulary); err != nil {
				return opt, fmt.Errorf("-vocab-file: %w", err)
			}
		}
		switch opt.TagsAsActions = *tagsAs == "action"; {
		case *tagsAs != "action" && *tagsAs != "reasoning":
			return opt, fmt.Errorf("-tags-as is %q, want one of [action reasoning]", *tagsAs)
		case opt.TagsAsActions && !f.Given("action-open") && !f.Given("action-tags"):
			return opt, errors.New("-tags-as needs the tags: -action-tags, or -action-open and -action-close")
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

// schemeFlags declares the flags of these entries of the catalogue. The function that it returns
// sets those that are given in options that have the option.
func schemeFlags(flags cli.Flags, entries ...string) func(opt *scheme.Options) error {
	type enumeration interface {
		encoding.TextUnmarshaler
		fmt.Stringer
	}
	type flagOf struct {
		scheme.Flag
		entry *scheme.Entry
		value any    // a pointer
		text  string // of an enumeration
	}
	var all []*flagOf
	for _, name := range entries {
		e := entry(name)
		opt := e.Defaults()
		for _, f := range e.Flags {
			x := reflect.New(option(e, &opt, f).Type())
			x.Elem().Set(option(e, &opt, f))
			of := &flagOf{f, e, x.Interface(), ""}
			all = append(all, of)
			switch x := of.value.(type) {
			case *float64:
				flags.Float64Var(x, f.Name, *x, f.Help)
			case *int:
				flags.IntVar(x, f.Name, *x, f.Help)
			case *bool:
				flags.BoolVar(x, f.Name, *x, f.Help)
			case enumeration:
				flags.StringVar(&of.text, f.Name, x.String(), f.Help)
			}
		}
	}
	return func(opt *scheme.Options) error {
		for _, f := range all {
			if !flags.Given(f.Name) {
				continue
			}
			if x, ok := f.value.(enumeration); ok {
				if err := x.UnmarshalText([]byte(f.text)); err != nil {
					return named(err)
				}
			}
			scheme.SetField(f.entry.Part(opt), f.Option, reflect.ValueOf(f.value).Elem())
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
	for name, v := range scheme.Fields(reflect.ValueOf(e.Part(opt)).Elem().Interface()) {
		if name == f.Option {
			return v
		}
	}
	panic("no option " + f.Option + " of " + e.Name)
}
