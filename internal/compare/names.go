package compare

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed621a2839/reweight/scheme"
)

// OfPapers are the schemes of the two papers.
const OfPapers = "uniform,actfocus,aem,actfocus+aem"

// ParseSchemes reads the names of schemes with commas between them; all stands for
// scheme.All. The error is the end of a sentence that begins with the name of a flag.
func ParseSchemes(list string) ([]scheme.Scheme, error) {
	if list == "all" {
		return scheme.All(), nil
	}
	var picked []scheme.Scheme
	for text := range strings.SplitSeq(list, ",") {
		if text == "all" {
			return nil, fmt.Errorf("has %q, want names without all, which stands alone", list)
		}
		s, err := scheme.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("has %w", err)
		}
		if slices.ContainsFunc(picked, func(other scheme.Scheme) bool { return other.Name == s.Name }) {
			return nil, fmt.Errorf("has %q twice", s.Name)
		}
		picked = append(picked, s)
	}
	return picked, nil
}

// SchemesUsage lists the names for the help of a command.
func SchemesUsage() string {
	var text strings.Builder
	text.WriteString(`The schemes. What a name does not mention is as in uniform. Names can be joined with +:
weights multiply, and so do factors; two that make the advantages, two losses, or tis and
icepop together are an error. "all" is each of them that is more than a part of another,
and actfocus+aem.

`)
	for _, e := range scheme.Entries() {
		what := e.Kind.String() + ": "
		if e.Kind == scheme.Several {
			what = ""
		}
		fmt.Fprintf(&text, "  %-24s %s%s\n", e.Name, what, e.Doc)
		if len(e.Synonyms) > 0 {
			fmt.Fprintf(&text, "  %-24s (also %s)\n", "", strings.Join(e.Synonyms, ", "))
		}
	}
	text.WriteByte('\n')
	return text.String()
}
