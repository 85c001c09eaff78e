package rollout

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// TagPresets are the texts around actions as chat templates and prompts write them, by name. Package reweight of Python
// has the same ones.
var TagPresets = []struct {
	Name string
	Tags [][2]string
}{
	{"answer", [][2]string{{"<answer>", "</answer>"}}},
	{"tool_call", [][2]string{{"<tool_call>", "</tool_call>"}}},
	{"json", [][2]string{{"{", "}"}}},
	{"react", [][2]string{{"Action:", "\n"}, {"Action Input:", "\n"}, {"Final Answer:", ""}}},
	{"boxed", [][2]string{{`\boxed{`, "}"}}},
	{"code", [][2]string{{"```", "```"}}},
}

// ParseTags returns the tags that a text states, for Options.ActionTags: names of TagPresets with + between them, or an
// opening tag and a closing one with a comma between them, and more of these pairs after further commas. A closing tag
// that is written \n is the end of the line.
func ParseTags(text string) ([][2]string, error) {
	var tags [][2]string
	if !strings.Contains(text, ",") {
		for name := range strings.SplitSeq(text, "+") {
			i := slices.IndexFunc(TagPresets, func(p struct {
				Name string
				Tags [][2]string
			}) bool {
				return p.Name == name
			})
			if i < 0 {
				var names []string
				for _, p := range TagPresets {
					names = append(names, p.Name)
				}
				return nil, fmt.Errorf("is %q, want two texts with a comma between them, such as <answer>,</answer>, or some of [%s] with + between them",
					text, strings.Join(names, " "))
			}
			tags = append(tags, TagPresets[i].Tags...)
		}
		return tags, nil
	}
	texts := strings.Split(text, ",")
	for i := 0; i+1 < len(texts); i += 2 {
		if texts[i+1] == `\n` {
			texts[i+1] = "\n"
		}
		tags = append(tags, [2]string{texts[i], texts[i+1]})
	}
	if len(texts)%2 != 0 {
		return nil, fmt.Errorf("is %q, which has %d texts, want pairs: an opening and a closing tag each", text,
			len(texts))
	}
	return tags, checkTags(tags)
}

// checkTags wants an opening tag in each pair.
func checkTags(tags [][2]string) error {
	for _, pair := range tags {
		if pair[0] == "" {
			return fmt.Errorf("has the pair %q, want a text that opens an action", pair)
		}
	}
	return nil
}

// An action of a response lies in [begin, end), and with its tags in [open, close).
type action struct{ open, begin, end, close int }

// actions returns the actions between the tags in a response, and how many opening tags were passed over for another
// one. An action begins after an opening tag, anew after each further one, and ends before the next closing tag. Of
// tags that begin at the same place the closing one counts, so that both may be the same. The end of the response
// closes an action too where atEnd is set, and it alone where the closing tag is empty.
func actions[E comparable](span, open, closing []E, atEnd bool) (found []action, passed int) {
	hasTag := func(at int, tag []E) bool {
		return len(tag) > 0 && len(span)-at >= len(tag) && slices.Equal(span[at:at+len(tag)], tag)
	}
	begin := -1 // of the action, if an opening tag came
	for at := 0; at < len(span); {
		switch {
		case begin >= 0 && hasTag(at, closing):
			found = append(found, action{begin - len(open), begin, at, at + len(closing)})
			begin = -1
			at += len(closing)
		case hasTag(at, open):
			if begin >= 0 {
				passed++
			}
			at += len(open)
			begin = at
		default:
			at++
		}
	}
	if begin >= 0 && atEnd {
		found = append(found, action{begin - len(open), begin, len(span), len(span)})
	}
	return found, passed
}

// textActions returns the actions between the tags in the text of a response, which may overlap, and how many opening
// tags were passed over. What a closed block of <think> holds is no action. Where the end of the text closes an action,
// the action ends before mark, at which a token such as <|im_end|> begins that ends the response.
func textActions(text []byte, tags [][2]string, mark int) (found []action, passed int) {
	for _, pair := range tags {
		open, closing := []byte(pair[0]), []byte(pair[1])
		bracket := bracketOf(pair)
		begin := 0
		for _, piece := range outsideThought(text, pair) {
			if bracket == 0 {
				passed += bytes.Count(text[begin:piece[0]], open)
			}
			part := text[piece[0]:piece[1]]
			var of []action
			if bracket != 0 {
				of = balanced(part, open, bracket, closing[0])
			} else {
				var again int
				of, again = actions(part, open, closing, len(closing) == 0 || pair[1] == "\n")
				passed += again
			}
			for _, a := range of {
				a = action{piece[0] + a.open, piece[0] + a.begin, piece[0] + a.end, piece[0] + a.close}
				if a.end == len(text) {
					a.end = max(min(a.end, mark), a.begin)
					a.close = a.end
				}
				found = append(found, a)
			}
			begin = piece[1]
		}
	}
	return found, passed
}

// bracketOf returns the bracket at the end of the opening tag if the closing tag is its partner, and else 0.
func bracketOf(pair [2]string) byte {
	if len(pair[1]) == 1 && pair[0] != "" {
		if i := strings.IndexByte("}])", pair[1][0]); i >= 0 && pair[0][len(pair[0])-1] == "{[("[i] {
			return "{[("[i]
		}
	}
	return 0
}

const thinkOpen, thinkClose = "<think>", "</think>"

// outsideThought returns where the text is no block of <think>: each such piece is searched as if it were a response. A
// block begins at <think>, or with the text where a chat template has written <think> before it, and ends at </think>;
// where that is missing, there is no block. Tags that hold one of these are looked for everywhere.
func outsideThought(text []byte, pair [2]string) (pieces [][2]int) {
	begin, both := 0, pair[0]+"\x00"+pair[1]
	for at := 0; !strings.Contains(both, thinkOpen) && !strings.Contains(both, thinkClose); {
		end := bytes.Index(text[at:], []byte(thinkClose))
		if end < 0 {
			break
		}
		end += at
		if o := bytes.Index(text[at:end], []byte(thinkOpen)); o >= 0 {
			pieces = append(pieces, [2]int{begin, at + o})
			begin = end + len(thinkClose)
		} else if at == 0 {
			begin = end + len(thinkClose)
		}
		at = end + len(thinkClose)
	}
	return append(pieces, [2]int{begin, len(text)})
}

// balanced returns the actions between an opening tag, which ends with a bracket, and the bracket that closes this one.
// Of actions within each other the outermost counts, and one that is never closed is none. What follows a backslash is
// no bracket, nor is what stands in double quotes, as in JSON, if the opening tag is the bracket alone; the end of a
// line ends a text in quotes.
func balanced(text, open []byte, bracket, closing byte) (found []action) {
	var begins []int // of the opening tags and of other brackets, which are -1
	quoted := false
	for at := 0; at < len(text); {
		c := text[at]
		switch {
		case len(begins) > 0 && c == '\\' && !bytes.HasPrefix(text[at:], open):
			at++ // and what follows
		case quoted:
			quoted = c != '"' && c != '\n'
		case bytes.HasPrefix(text[at:], open):
			begins = append(begins, at)
			at += len(open) - 1
		case len(begins) == 0:
		case c == '"':
			quoted = len(open) == 1
		case c == bracket:
			begins = append(begins, -1)
		case c == closing:
			if o := begins[len(begins)-1]; o >= 0 {
				for len(found) > 0 && found[len(found)-1].open > o {
					found = found[:len(found)-1]
				}
				found = append(found, action{o, o + len(open), at, at + 1})
			}
			begins = begins[:len(begins)-1]
		}
		at++
	}
	return found
}

// isMark reports whether the text of a token is a mark that ends a response, such as <|im_end|> or </s>.
func isMark(text string) bool {
	return len(text) > 2 && text[0] == '<' && text[len(text)-1] == '>' &&
		!strings.ContainsAny(text[1:len(text)-1], "<> \t\r\n")
}
