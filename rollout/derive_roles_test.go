package rollout

import (
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
	"pgregory.net/rapid"
)

// rejectedTurns are the tokens that are actions by their tags, and none in the files: the
// game rejected these turns, because a tag comes twice in them.
var rejectedTurns = map[string][]int{
	"../testdata/frozenlake-small.safetensors": {4285},
	"../testdata/large/frozenlake.safetensors": {4848, 4993, 4997},
}

// rolesByDefinition marks the tokens of a span of which the nearest tag before is an
// open tag and the nearest one after a close tag, for tags of ids that do not overlap.
func rolesByDefinition(ids, open, closing []int32) []reweight.Role {
	role := slices.Repeat([]reweight.Role{reweight.RoleReasoning}, len(ids))
	at := func(t int, tag []int32) bool {
		return t >= 0 && t+len(tag) <= len(ids) && slices.Equal(ids[t:t+len(tag)], tag)
	}
	for t := range ids {
		before, after := 0, 0 // 1 open, 2 close
		for u := t; u > 0 && before == 0; u-- {
			if at(u-len(open), open) {
				before = 1
			} else if at(u-len(closing), closing) {
				before = 2
			}
		}
		for u := t; u < len(ids) && after == 0; u++ {
			if at(u, open) {
				after = 1
			} else if at(u, closing) {
				after = 2
			}
		}
		within := false // a tag
		for u := range ids {
			within = within || at(u, open) && u <= t && t < u+len(open) || at(u, closing) && u <= t &&
				t < u+len(closing)
		}
		if before == 1 && after == 2 && !within {
			role[t] = reweight.RoleAction
		}
	}
	return role
}

// TestActionsOfSpans: actions are as defined in each span, whether the tags are one id
// or several, cut by the end of a span, nested or never closed.
func TestActionsOfSpans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// The tags share no ids, so that no two overlap.
		tags := [][2][]int32{{{1}, {2}}, {{1, 3}, {2, 4}}, {{1, 3, 5}, {2}}, {{1}, {2, 4, 6}}}
		tag := rapid.SampledFrom(tags).Draw(t, "tags")
		r, want := new(record), []reweight.Role(nil)
		var wantSpans []int32
		for span := range rapid.IntRange(0, 4).Draw(t, "spans") {
			for range rapid.IntRange(1, 3).Draw(t, "prompt") {
				r.TokenIDs = append(r.TokenIDs, rapid.SampledFrom([]int32{0, 1, 2, 3}).Draw(t, "masked"))
				r.mask = append(r.mask, false)
				want, wantSpans = append(want, reweight.RoleMasked), append(wantSpans, -1)
			}
			var ids []int32
			for range rapid.IntRange(1, 8).Draw(t, "pieces") {
				ids = append(ids, rapid.SampledFrom([][]int32{tag[0], tag[1], {0}, {7}, tag[0][:1], tag[1][:1]}).Draw(t,
					"piece")...)
			}
			r.TokenIDs = append(r.TokenIDs, ids...)
			r.mask = append(r.mask, slices.Repeat([]bool{true}, len(ids))...)
			want = append(want, rolesByDefinition(ids, tag[0], tag[1])...)
			wantSpans = append(wantSpans, slices.Repeat([]int32{int32(span)}, len(ids))...)
		}
		if len(r.mask) == 0 {
			return
		}
		r.takeMask()
		deriveSpans(r)
		must.Get(markActions(r, &Options{ActionOpen: tag[0], ActionClose: tag[1]}))
		if !slices.Equal(r.Role, want) {
			t.Fatalf("ids %v: roles\n%v, want\n%v", r.TokenIDs, r.Role, want)
		}
		if !slices.Equal(r.SpanIDs, wantSpans) {
			t.Fatalf("spans %v, want %v", r.SpanIDs, wantSpans)
		}
	})
}

// TestActionsOfTexts cuts a span's text into tokens anywhere: a token is an action if
// all of it is between the tags.
func TestActionsOfTexts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var text, inside strings.Builder // inside marks the bytes of actions
		add := func(s, mark string) {
			text.WriteString(s)
			inside.WriteString(strings.Repeat(mark, len(s)))
		}
		for range rapid.IntRange(1, 4).Draw(t, "parts") {
			add(rapid.SampledFrom([]string{"", "so ", "<a", "</a> ", "é"}).Draw(t, "reasoning"), ".")
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				add("<a>", "t")
				add(rapid.SampledFrom([]string{"", "x", "up down", "<a", "é"}).Draw(t, "action"), "x")
				add("</a>", "t")
			case 1: // the second tag begins the action
				add("<a> no ", ".")
				add("<a>", "t")
				add("yes", "x")
				add("</a>", "t")
			}
		}
		if rapid.Bool().Draw(t, "unclosed") {
			add("<a>never closed", ".")
		}
		all, marks := text.String(), inside.String()
		r := &record{mask: []bool{false}, texts: []string{"<a>"}} // the tag is none of the span's
		want := []reweight.Role{reweight.RoleMasked}
		for at := 0; at < len(all); {
			n := min(rapid.IntRange(1, 5).Draw(t, "length"), len(all)-at)
			r.texts, r.mask = append(r.texts, all[at:at+n]), append(r.mask, true)
			role := reweight.RoleReasoning
			if strings.Count(marks[at:at+n], "x") == n {
				role = reweight.RoleAction
			}
			want = append(want, role)
			at += n
		}
		r.takeMask()
		deriveSpans(r)
		must.Get(markActions(r, &Options{ActionTags: [][2]string{{"<a>", "</a>"}}}))
		if !slices.Equal(r.Role, want) {
			t.Fatalf("texts %q: roles\n%v, want\n%v", r.texts, r.Role, want)
		}
	})
}

func TestMarkActions(t *testing.T) {
	ids := func(s string) []int32 {
		list := make([]int32, len(s))
		for i := range s {
			list[i] = int32(s[i])
		}
		return list
	}
	for _, c := range []struct {
		name        string
		mask, ids   string
		spans       []int32
		texts       []string
		open, close string
		tags        [2]string
		want        string // roles, or an error
	}{
		{name: "one action", mask: "..rrrrr", ids: "<>a<xy>", open: "<", close: ">", want: "0011221"},
		{name: "empty action", mask: "rr", ids: "<>", open: "<", close: ">", want: "11"},
		{name: "two actions", mask: "rrrrrr", ids: "<x><y>", open: "<", close: ">", want: "121121"},
		{name: "an open tag that comes again", mask: "rrrrr", ids: "<x<y>", open: "<", close: ">", want: "11121"},
		{name: "over the end of a span", mask: "rr.rr", ids: "<x.y>", open: "<", close: ">", want: "11011"},
		{name: "spans of the source side by side", mask: "rrrr", ids: "<xy>", spans: []int32{0, 0, 1, 1}, open: "<", close: ">", want: "1111"},
		{name: "a tag cut by the end of a span", mask: "rr.rr", ids: "<<x>>", open: "<<", close: ">>", want: "11011"},
		{name: "equal tags", mask: "rrrrrr", ids: "|x|y|z", open: "|", close: "|", want: "121111"},
		{name: "tags in which ids repeat", mask: "rrrrrr", ids: "aabxab", open: "ab", close: "ab", want: "111211"},
		{name: "empty texts", mask: "rrrrr", texts: []string{"", "<a>", "", "</a>", ""}, tags: [2]string{"<a>", "</a>"}, want: "11211"},
		{name: "ids before texts", mask: "rrr", ids: "<x>", texts: []string{"", "", ""}, open: "<", close: ">", tags: [2]string{"a", "b"}, want: "121"},
		{name: "texts where ids are missing", mask: "rrr", texts: []string{"a", "c", "b"}, open: "<", close: ">", tags: [2]string{"a", "b"}, want: "121"},
		{name: "neither", mask: "r", open: "<", close: ">", want: "token_ids is missing, and so are the texts of tokens: the tags of actions cannot be looked for"},
		{name: "no ids", mask: "r", texts: []string{"x"}, open: "<", close: ">", want: "token_ids is missing, in which the tags of actions are looked for: give the tags' texts"},
		{name: "no texts", mask: "r", ids: "x", tags: [2]string{"<", ">"}, want: "the texts of the tokens are missing, in which the tags of actions are looked for: give them by -vocab-file, or the tags' token ids"},
	} {
		r := &record{texts: c.texts}
		r.TokenIDs, r.SpanIDs = ids(c.ids), c.spans
		for t, letter := range c.mask {
			role := reweight.RoleMasked
			if letter == 'r' { // an action is one by the tags, whatever the source says
				role = reweight.Role(1 + t%2)
			}
			r.Role = append(r.Role, role)
		}
		if c.spans == nil {
			deriveSpans(r)
		}
		opt := Options{ActionOpen: ids(c.open), ActionClose: ids(c.close)}
		if c.tags[0] != "" {
			opt.ActionTags = [][2]string{c.tags}
		}
		_, err := markActions(r, &opt)
		got := ""
		for _, role := range r.Role {
			got += string('0' + rune(role))
		}
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestPromptKey(t *testing.T) {
	of := func(mask []bool, prompt string, ids ...int32) string {
		r := &record{mask: mask, prompt: prompt}
		r.TokenIDs = ids
		r.takeMask()
		return promptKey(r)
	}
	prompt2 := []bool{false, false, true}
	a := of(prompt2, "", 1, 2, 3)
	if b := of(prompt2, "", 1, 2, 4); a != b || a == "" {
		t.Errorf("equal prompts have the keys %q and %q", a, b)
	}
	keys := map[string]bool{a: true}
	for _, other := range []string{
		of(prompt2, "", 2, 1, 3),
		of(prompt2, "", 1, 258, 3),
		of([]bool{false, true, true}, "", 1, 2, 3),
		of(nil, "\x01\x00\x00\x00\x02\x00\x00\x00"),
		of(prompt2, "text", 1, 2, 3),
	} {
		if other == "" || keys[other] {
			t.Errorf("the key %q belongs to another prompt", other)
		}
		keys[other] = true
	}
	for _, none := range []string{of([]bool{true}, "", 1), of(prompt2, ""), of(nil, "", 1)} {
		if none != "" {
			t.Errorf("no prompt has the key %q", none)
		}
	}
}
