package jsonscan

import (
	"math"
	"reflect"
	"testing"
)

func TestObject(t *testing.T) {
	var s Scanner
	s.Reset([]byte(` {"ids" : [1, -2,3], "p":[ -0.5,1e3 ,NaN,"-Infinity",-Infinity] ,"\u0061": "x\ty\ud83d", "skip":{"a":[{}, [ ], null, true,false, "", -0.1E+2]}, "m":[true,0,1.0], "i":12345678901} `))
	var ids []int32
	var p []float32
	var a string
	var m []bool
	var i int64
	err := s.Object(func(name []byte) (err error) {
		switch string(name) {
		case "ids":
			ids, err = s.Int32s(nil)
		case "p":
			p, err = s.Floats(nil)
		case "a":
			a, err = s.String()
		case "m":
			m, err = s.Bools(nil)
		case "i":
			i, err = s.Int64()
		}
		return err
	})
	if err != nil || s.Kind() != End {
		t.Fatal(err, s.Kind())
	}
	if len(p) != 5 || p[2] == p[2] {
		t.Fatal(p)
	}
	p[2] = 0
	inf := float32(math.Inf(-1))
	if !reflect.DeepEqual(ids, []int32{1, -2, 3}) || !reflect.DeepEqual(p, []float32{-0.5, 1000, 0, inf, inf}) ||
		a != "x\ty\ufffd" || !reflect.DeepEqual(m, []bool{true, false, true}) || i != 12345678901 {
		t.Error(ids, p, a, m, i)
	}
}
