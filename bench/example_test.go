package bench_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
	"unsafe"

	"github.com/seed621a2839/reweight/bench"
)

// Any functions can be measured against each other: here two ways to find the
// largest of a thousand numbers.
func ExampleSampler_Sample() {
	x := make([]int, 1000)
	for i := range x {
		x[i] = i * 7919 % 1000
	}
	largest := func() error { _ = slices.Max(x); return nil }
	sorting := func() error { s := slices.Clone(x); slices.Sort(s); _ = s[len(s)-1]; return nil }

	s := bench.Sampler{Block: 100 * time.Microsecond, Rounds: 12, Budget: 50 * time.Millisecond, Precision: 0.02}
	samples, err := s.Sample(context.Background(), largest, sorting, largest) // the first again: how noisy is it now?
	if err != nil {
		fmt.Println(err)
		return
	}
	times, null := samples.Ratio(1, 0), samples.Ratio(2, 0)
	fmt.Println("sorting takes longer:", times.Lo > 1)
	fmt.Println("the same function twice seems alike:", null.Median > 0.5 && null.Median < 2)
	// Output:
	// sorting takes longer: true
	// the same function twice seems alike: true
}

// How close to the memory's speed is a sum of numbers?
func ExamplePlainRead() {
	x := make([]float64, 1<<16)
	for i := range x {
		x[i] = 1
	}
	memory := unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), 8*len(x))
	total := 0.0
	sum := func() error {
		total = 0
		for _, v := range x {
			total += v
		}
		return nil
	}
	s := bench.Sampler{Block: 100 * time.Microsecond, Rounds: 12, Budget: 50 * time.Millisecond}
	samples, err := s.Sample(context.Background(), bench.PlainRead(memory, 1), sum)
	if err != nil {
		fmt.Println(err)
		return
	}
	share := samples.Ratio(0, 1) // of the plain read's speed
	fmt.Println("the sum of", total, "is slower than reading:", share.Hi < 1)
	// Output: the sum of 65536 is slower than reading: true
}

// Is a new way slower than the old one? Pairs decide, a few if it is clear.
func ExampleRule() {
	x := make([]float64, 1000)
	times := func(f func()) func() ([]float64, error) {
		return func() ([]float64, error) {
			ns := make([]float64, 5) // blocks
			for i := range ns {
				const calls = 20
				begin := time.Now()
				for range calls {
					f()
				}
				ns[i] = float64(time.Since(begin)) / calls
			}
			return ns, nil
		}
	}
	once := func() {
		for i := range x {
			x[i] += 1
		}
	}
	twice := func() { once(); once() }

	rule, coin := bench.NewRule(1, 0.01), rand.New(rand.NewPCG(1, 2))
	var pairs []bench.Pair
	verdict := bench.Open
	for verdict == bench.Open {
		pair, _, err := bench.TakePair(coin, times(once), times(twice))
		if err != nil {
			fmt.Println(err)
			return
		}
		pairs = append(pairs, pair)
		verdict, _ = rule.Decide(pairs)
	}
	fmt.Println(verdict)
	// Output: regression
}
