package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed621a2839/reweight/scheme"
)

// between returns text with the part between the marks, which follows begin and goes up to
// end, replaced.
func between(text, begin, end, part string) (string, error) {
	before, rest, ok := strings.Cut(text, begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return "", fmt.Errorf("it lacks %q or %q after it", begin, end)
	}
	return before + begin + part + end + after, nil
}

// docGo returns doc.go with the methods of the catalogue under "The schemes".
func docGo(old string) (string, error) {
	var out strings.Builder
	out.WriteString("//\n")
	for _, group := range []struct {
		what string
		of   func(e *scheme.Entry) bool
	}{
		{"rewards of tokens, or what is added to the rewards of trajectories", kind(scheme.Reward)},
		{"advantages", func(e *scheme.Entry) bool { return e.Kind == scheme.Advantage && !shapes(e) }},
		{"advantages from those that another one has made", shapes},
		{"factors of the advantages, which [Workspace.Multiply] applies", kind(scheme.Factor)},
		{"weights of tokens, several of which [Workspace.Multiply] combines", kind(scheme.Weight)},
		{"the loss of a [PolicyLoss], and its gradient with respect to log-probabilities", kind(scheme.Loss)},
		{"the loss of the critic, and its gradient with respect to values", kind(scheme.Critic)},
	} {
		var methods []string
		for _, e := range scheme.Entries() {
			if link := "[Workspace." + e.Method + "]"; group.of(e) && !slices.Contains(methods, link) {
				methods = append(methods, link)
			}
		}
		lines := wrap(strings.Join(methods, ", ")+": "+group.what, 88)
		out.WriteString("//   - " + strings.ReplaceAll(lines, "\n", "\n//     ") + "\n")
	}
	out.WriteString("//\n")
	return between(old, "// # The schemes\n", "// # Single kernels", out.String())
}

func kind(k scheme.Kind) func(e *scheme.Entry) bool {
	return func(e *scheme.Entry) bool { return e.Kind == k }
}

// shapes reports whether the entry makes advantages from others.
func shapes(e *scheme.Entry) bool {
	return e.Kind == scheme.Advantage && slices.Contains(e.Reads, "advantages")
}

// wrap breaks a text into lines of at most so many bytes.
func wrap(text string, most int) string {
	line, out := 0, ""
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case line+1+len(word) > most:
			out, line = out+"\n", 0
		default:
			out, line = out+" ", line+1
		}
		out, line = out+word, line+len(word)
	}
	return out
}
