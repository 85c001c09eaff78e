package compare

import (
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/scheme"
)

func TestParseSchemes(t *testing.T) {
	picked, err := ParseSchemes("gigpo+actfocus+gspo,rloo,pg")
	if err != nil || len(picked) != 3 || picked[0].Name != "actfocus+gigpo+gspo" || picked[2].Name != "pg" {
		t.Errorf("%v, %v", picked, err)
	}
	if all, err := ParseSchemes("all"); err != nil || len(all) != len(scheme.All()) {
		t.Errorf("%d schemes, %v", len(all), err)
	}
	for list, want := range map[string]string{
		"":                          `has "": no scheme has the name ""; there are uniform, actfocus, aem, `,
		"all,uniform":               `has "all,uniform", want names without all, which stands alone`,
		"tis,all":                   "all, which stands alone",
		"uniform,":                  `has ""`,
		"uniform,vanilla":           `has "uniform" twice`,
		"uniform+aem,aem":           `has "aem" twice`,
		"aem+actfocus,actfocus+aem": `has "actfocus+aem" twice`,
		"rloo,gspo+cispo":           `has "gspo+cispo": gspo and cispo both are a loss`,
	} {
		if _, err := ParseSchemes(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", list, err, want)
		}
	}
}

// TestSchemesUsage: every entry has a line, and none is longer than a screen.
func TestSchemesUsage(t *testing.T) {
	text := SchemesUsage()
	for _, e := range scheme.Entries() {
		if !strings.Contains(text, "\n  "+e.Name+" ") {
			t.Errorf("no %s", e.Name)
		}
	}
	for line := range strings.Lines(text) {
		if len(line) > 101 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
}
