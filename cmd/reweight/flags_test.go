package main

import (
	"io"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/rollout"
)

func TestRolloutFlags(t *testing.T) {
	for _, c := range []struct {
		args string
		want rollout.Options
		err  string
	}{
		{"", rollout.Options{}, ""},
		{"-action-open 6 -action-close 7,0,2147483647 -group-size 8 -vocab 75 -surprisal-entropy", rollout.Options{
			ActionOpen: []int32{6}, ActionClose: []int32{7, 0, math.MaxInt32}, GroupSize: 8, Vocab: 75,
			SurprisalEntropy: true,
		}, ""},
		{"-action-tags <answer>,</answer>", rollout.Options{ActionTags: [][2]string{{"<answer>", "</answer>"}}}, ""},
		{"-action-open 6", rollout.Options{}, "-action-open and -action-close go together: give both"},
		{"-action-close 6", rollout.Options{}, "-action-open and -action-close go together: give both"},
		{"-action-open 6, -action-close 7", rollout.Options{}, `-action-open has "", want token ids of 0 to 2147483647`},
		{"-action-open 6 -action-close x", rollout.Options{}, `-action-close has "x", want token ids of 0 to 2147483647`},
		{"-action-open 6 -action-close=-1", rollout.Options{}, `-action-close has "-1", want token ids of 0 to 2147483647`},
		{"-action-open 2147483648 -action-close 1", rollout.Options{}, `-action-open has "2147483648", want token ids of 0 to 2147483647`},
		{"-action-tags tool_call+boxed -tags-as action", rollout.Options{TagsAsActions: true,
			ActionTags: [][2]string{{"<tool_call>", "</tool_call>"}, {`\boxed{`, "}"}}}, ""},
		{`-action-tags a,b,Go:,\n,End:,`, rollout.Options{ActionTags: [][2]string{{"a", "b"}, {"Go:", "\n"}, {"End:", ""}}}, ""},
		{"-action-tags a", rollout.Options{}, `-action-tags is "a", want two texts with a comma between them, such as <answer>,</answer>, or some of [answer `},
		{"-action-tags answer+", rollout.Options{}, `-action-tags is "answer+", want two texts`},
		{"-action-tags ,a", rollout.Options{}, `-action-tags has the pair ["" "a"], want a text that opens an action`},
		{"-action-tags a,b,c", rollout.Options{}, `-action-tags is "a,b,c", which has 3 texts, want pairs`},
		{"-action-tags a,b -tags-as x", rollout.Options{}, `-tags-as is "x", want one of [action reasoning]`},
		{"-tags-as action", rollout.Options{}, `-tags-as needs the tags`},
		{"-action-tags=", rollout.Options{}, `-action-tags is "", want two texts`},
		{"-group-size 0", rollout.Options{}, "-group-size is 0, want 1 to 2147483647"},
		{"-vocab=-1", rollout.Options{}, "-vocab is -1, want 1 to 2147483647"},
	} {
		flags := cli.NewFlags("reweight convert")
		options := rolloutFlags(flags)
		if err := flags.ParseAlone("", strings.Fields(c.args), io.Discard); err != nil {
			t.Fatalf("%s: %v", c.args, err)
		}
		got, err := options()
		if c.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), c.err) {
				t.Errorf("%s: error %v, want %s", c.args, err, c.err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v, want %+v", c.args, got, err, c.want)
		}
	}
}
