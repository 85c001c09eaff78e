package worker

import (
	"reflect"
	"testing"
)

func TestShake(t *testing.T) {
	sizes := func(seed uint64) (list []int) {
		shaken = nil
		Shake(seed)
		total := 0
		for _, b := range shaken {
			list = append(list, len(b))
			total += len(b)
		}
		if total < 1<<12 || total > 1<<19 {
			t.Errorf("seed %d keeps %d bytes", seed, total)
		}
		return list
	}
	first := sizes(1)
	if !reflect.DeepEqual(first, sizes(1)) {
		t.Error("the same seed gives other sizes")
	}
	for seed := uint64(2); seed < 100; seed++ {
		if reflect.DeepEqual(first, sizes(seed)) {
			t.Errorf("seed %d gives the sizes of seed 1", seed)
		}
	}
	shaken = nil
}
