package measure

import "testing"

// TestElements: a GPU takes more rows than the host, which has few of them.
func TestElements(t *testing.T) {
	for _, c := range []struct {
		rows, vocab int
		host, ok    bool
	}{{1 << 14, 1 << 14, true, true}, {1 << 14, 1<<14 + 1, true, false}, {8192, 262144, false, true},
		{1 << 15, 1 << 18, false, true}, {1 << 15, 1<<18 + 1, false, false}} {
		if err := (Sizes{Rows: c.rows, Vocabs: []int{c.vocab}}).CheckElements(c.host); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
