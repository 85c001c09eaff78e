package reweight_test

import (
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
)

// TestKLNames: verl's names are read, and ours are printed.
func TestKLNames(t *testing.T) {
	for name, want := range map[string]string{
		"kl": "k1", "mse": "k2", "low_var_kl": "k3", "low-var-kl": "k3", "kl+": "k1+", "mse+": "k2", "k2+": "k2", "low_var_kl+": "k3+", "abs+": "abs+",
	} {
		var form reweight.KLForm
		if err := form.UnmarshalText([]byte(name)); err != nil || form.String() != want {
			t.Errorf("%s: %v, %v, want %s", name, form, err, want)
		}
	}
	for _, name := range []string{"", "+", "full", "kl++", "low_var", "KL"} {
		form := reweight.KLAbs
		if err := form.UnmarshalText([]byte(name)); err == nil || !strings.Contains(err.Error(), "want one of [k3 k2 k1 abs k3+ k1+ abs+]") || form != reweight.KLAbs {
			t.Errorf("%q: %v, %v", name, form, err)
		}
	}
}
