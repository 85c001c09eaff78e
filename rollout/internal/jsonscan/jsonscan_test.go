package jsonscan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
	"pgregory.net/rapid"
)

func scannerOf(text string) *Scanner {
	s := new(Scanner)
	s.Reset([]byte(text))
	return s
}

func TestObject(t *testing.T) {
	s := scannerOf(` {"ids" : [1, -2,3], "p":[ -0.5,1e3 ,NaN,"-Infinity",-Infinity] ,"\u0061": "x\ty\ud83d",` +
		` "skip":{"a":[{}, [ ], null, true,false, "", -0.1E+2]}, "m":[true,0,1.0], "i":12345678901} `)
	var ids []int32
	var p []float32
	var a string
	var m []bool
	var i int64
	err := s.Object(func(name []byte) (err error) {
		switch string(name) {
		case "ids":
			ids, err = s.Int32s()
		case "p":
			p, err = s.Floats()
		case "a":
			a, err = s.String()
		case "m":
			m, err = s.Bools()
		case "i":
			i, err = s.Int64()
		}
		return err
	})
	if err != nil || s.Kind() != End {
		t.Fatal(err, s.Kind())
	}
	inf := float32(math.Inf(-1))
	if len(p) != 5 || math.Float32bits(p[2]) != 0x7fc00000 {
		t.Fatal(p)
	}
	p[2] = 0
	if !reflect.DeepEqual(ids, []int32{1, -2, 3}) || !reflect.DeepEqual(p, []float32{-0.5, 1000, 0, inf, inf}) ||
		a != "x\ty\ufffd" || !reflect.DeepEqual(m, []bool{true, false, true}) || i != 12345678901 {
		t.Error(ids, p, a, m, i)
	}
}

func TestErrors(t *testing.T) {
	read := func(s *Scanner) error {
		return s.Object(func(name []byte) (err error) {
			switch string(name) {
			case "ids":
				_, err = s.Int32s()
			case "i64":
				_, err = s.Int64()
			case "p":
				_, err = s.Floats()
			case "m":
				_, err = s.Bools()
			case "s":
				_, err = s.String()
			case "o":
				err = s.Object(func([]byte) error { return s.Array(func(int) error { return s.Skip() }) })
			case "deep":
				err = s.Array(func(int) error {
					return s.Object(func([]byte) error { _, err := s.Floats(); return err })
				})
			case "refused":
				if err = s.Skip(); err == nil {
					err = s.Errorf("has %d elements", 3)
				}
			}
			return err
		})
	}
	for text, want := range map[string]string{
		`[]`:                                     `the value is an array, want an object`,
		``:                                       `byte 1: found the end, want a value`,
		`{`:                                      `byte 2: found the end, want the name of a field`,
		`{"a"`:                                   `byte 5: found the end, want a colon`,
		`{"a" 1`:                                 `byte 6: found '1', want a colon`,
		`{"a":1`:                                 `byte 7: found the end, want a comma or }`,
		`{"a":1,}`:                               `byte 8: found '}', want the name of a field`,
		`{"a":1 "b":2}`:                          `byte 8: found '"', want a comma or }`,
		`{"a":}`:                                 `a, byte 6: found '}', want a value`,
		`{"a":1,"\u0061":2}`:                     `the value has field a twice`,
		`{"ids":[1,4.5]}`:                        `ids[1] is 4.5, want an integer`,
		`{"ids":[1,2e3]}`:                        `ids[1] is 2e3, want an integer`,
		`{"ids":[1,"2"]}`:                        `ids[1] is "2", want an integer`,
		`{"ids":[1,NaN]}`:                        `ids[1] is NaN, want an integer`,
		`{"ids":[1,null]}`:                       `ids[1] is null, want an integer`,
		`{"ids":[1,-2147483649]}`:                `ids[1] is -2147483649, want an integer of 32 bits`,
		`{"ids":[1,2`:                            `ids, byte 12: found the end, want a comma or ]`,
		`{"ids":[1 2]}`:                          `ids, byte 11: found '2', want a comma or ]`,
		`{"ids":[01]}`:                           `ids, byte 10: found '1', want a comma or ]`,
		`{"ids":[1,]}`:                           `ids[1], byte 11: found ']', want a value`,
		`{"i64":9223372036854775808}`:            `i64 is 9223372036854775808, want an integer of 64 bits`,
		`{"p":[1,2,+3]}`:                         `p[2], byte 11: found '+', want a value`,
		`{"p":[1e39]}`:                           `p[0] is 1e39, want a number that float32 can hold`,
		`{"p":[1.]}`:                             `p[0], byte 9: found ']', want a digit`,
		`{"p":[-]}`:                              `p[0], byte 8: found ']', want a digit`,
		`{"p":[.5]}`:                             `p[0], byte 7: found '.', want a value`,
		`{"p":[Nan]}`:                            `p[0], byte 9: found 'n', want NaN`,
		`{"p":["nan"]}`:                          `p[0] is "nan", want a number`,
		`{"p":[null]}`:                           `p[0] is null, want a number`,
		`{"p":null}`:                             `p is null, want an array`,
		`{"p":3}`:                                `p is 3, want an array`,
		`{"m":[2]}`:                              `m[0] is 2, want true, false, 1 or 0`,
		`{"m":[{"a":1}]}`:                        `m[0] is an object, want true, false, 1 or 0`,
		`{"m":[tru]}`:                            `m[0], byte 10: found ']', want true`,
		`{"s":1}`:                                `s is 1, want a string`,
		"{\"s\":\"a\nb\"}":                       `s, byte 8: found '\n', want an escape sequence for this character in a string`,
		`{"s":"\x"}`:                             `s, byte 8: found 'x', want an escape sequence`,
		`{"s":"\u12g4"}`:                         `s, byte 11: found 'g', want a hexadecimal digit`,
		`{"s":"abc`:                              `s, byte 10: found the end, want the closing quote of a string`,
		`{"o":{"x":[1,{"y":[}]}]}`:               `o.x[1], byte 20: found '}', want a value`,
		`{"deep":[{},{"q":[1,2,true]}]}`:         `deep[1].q[2] is true, want a number`,
		`{"refused":[1,2,3]}`:                    `refused has 3 elements`,
		`{"skip":[1,[2}]}`:                       `skip, byte 14: found '}', want a comma or ]`,
		`{"\u001b[2J":` + "\xff}":                `\x1b[2J, byte 14: found 0xff, want a value`,
		`{"s":` + strings.Repeat("7", 100) + `}`: `s is ` + strings.Repeat("7", 40) + `..., want a string`,
	} {
		err := read(scannerOf(text))
		if err == nil || err.Error() != want {
			t.Errorf("%s:\n%v, want\n%s", text, err, want)
		}
		if e := new(Error); errors.As(err, &e) && e.Byte > len(text) {
			t.Errorf("%s: an error at byte %d", text, e.Byte)
		}
	}
}

// Arrays and objects are nested as deep as encoding/json takes them, and no deeper.
func TestDepth(t *testing.T) {
	for _, pair := range []string{"[]", "{}"} {
		begin, end := pair[:1], pair[1:]
		if pair == "{}" {
			begin = `{"":`
		}
		for n, ok := range map[int]bool{maxDepth: true, maxDepth + 1: false} {
			text := strings.Repeat(begin, n-1) + pair + strings.Repeat(end, n-1)
			if json.Valid([]byte(text)) != ok {
				t.Fatal("not the limit of encoding/json")
			}
			if err := scannerOf(text).Skip(); (err == nil) != ok {
				t.Errorf("%d of %s: %.100v", n, pair, err)
			}
			if _, err := tree(scannerOf(text)); (err == nil) != ok {
				t.Errorf("%d of %s: %.100v", n, pair, err)
			}
		}
	}
}

func TestManyFields(t *testing.T) {
	for _, n := range []int{1, fewNames - 1, fewNames, fewNames + 1, 3 * fewNames} {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"f%d":%d,`, i, i)
		}
		fields := strings.TrimSuffix(b.String(), ",")
		if _, err := tree(scannerOf("{" + fields + "}")); err != nil {
			t.Errorf("%d fields: %v", n, err)
		}
		for _, i := range []int{0, n - 1} {
			_, err := tree(scannerOf(fmt.Sprintf(`{%s,"f%d":1}`, fields, i)))
			if want := fmt.Sprintf("the value has field f%d twice", i); err == nil || err.Error() != want {
				t.Errorf("%d fields: %v, want %s", n, err, want)
			}
		}
	}
}

// An object has too many fields before their names take much memory.
func TestTooManyFields(t *testing.T) {
	text := []byte{'{'}
	for i := range maxFields + 1 {
		text = fmt.Appendf(text, `"%x":0,`, i)
	}
	text[len(text)-1] = '}'
	var s Scanner
	s.Reset(text)
	if err := s.Object(func([]byte) error { return nil }); err == nil ||
		err.Error() != "the value has more than 1048576 fields" {
		t.Error(err)
	}
}

// checkFloat compares the float32 that text is read as, alone and within an array, with
// that of strconv. The text is a number of JSON.
func checkFloat(t interface {
	Helper()
	Errorf(string, ...any)
}, text string) {
	t.Helper()
	want, wantErr := strconv.ParseFloat(text, 32)
	for _, array := range []string{"[" + text + "]", "[" + text + "   ,  " + text + "         ]"} {
		got, err := scannerOf(array).Floats()
		if (err == nil) != (wantErr == nil) {
			t.Errorf("%s: error %v, want %v", array, err, wantErr)
			return
		}
		for _, f := range got {
			if wantErr == nil && math.Float32bits(f) != math.Float32bits(float32(want)) {
				t.Errorf("%s: %x, want %x", array, f, float32(want))
			}
		}
	}
}

// Numbers are rounded as strconv rounds them, also those that are near the middle
// between two float32.
func TestFloats(t *testing.T) {
	for _, text := range []string{
		"0", "-0", "0.0", "-0.000e5", "0e99999999999", "1e-99999999999", "1e99999999", "1e38", "3.4028235e38", "3.4028236e38",
		"1e-45", "7e-46", "7.1e-46", "1.17549435e-38", "123456789012345678", "1234567890123456789", "12345678901234567890",
		"16777217", "16777219", "16777217.0000000001", "0.000000000000000000000000000000012345678", "1E5", "1e+5", "1e-5",
		"9007199791611905", "9007200328482816", "12345678", "123456789", "0.12345678", "0.1234567", "0.123456789012345678901",
	} {
		checkFloat(t, text)
	}
	rapid.Check(t, func(t *rapid.T) {
		f := math.Float32frombits(rapid.Uint32().Draw(t, "bits"))
		if rapid.Bool().Draw(t, "moderate") {
			f = float32(rapid.Float32Range(-100, 100).Draw(t, "f"))
		}
		if f-f != 0 {
			return
		}
		d := float64(f)
		switch rapid.IntRange(0, 2).Draw(t, "place") {
		case 1: // the middle to the next float32, or near it
			d = (d + float64(math.Nextafter32(f, 100*f))) / 2
		case 2:
			d = (d + float64(math.Nextafter32(f, 100*f))) / 2
			for range rapid.IntRange(1, 8).Draw(t, "steps") {
				d = math.Nextafter(d, 100*d)
			}
		}
		if math.IsInf(d, 0) {
			return
		}
		digits := rapid.IntRange(-1, 24).Draw(t, "digits")
		format := rapid.SampledFrom([]byte("gef")).Draw(t, "format")
		checkFloat(t, strconv.FormatFloat(d, format, digits, 64))
	})
}

// TestQuick is that the numbers of token data do not need strconv.
func TestQuick(t *testing.T) {
	for _, text := range []string{"-1.2345678", "-0.00012340980884619057", "-1.2345678806304932", "0", "1", "-12.5",
		"3.1415927e-05", "1.2345678901234567e-05", "1e-07"} {
		if _, end := quickFloat([]byte(text+", "), 0); end != len(text) {
			t.Errorf("%s ends at %d", text, end)
		}
	}
}

func TestAppendFloat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := math.Float32frombits(rapid.OneOf(rapid.Uint32(), rapid.SampledFrom([]uint32{
			0, 1 << 31, 1, 0x807fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f7fffff,
		})).Draw(t, "bits"))
		text := AppendFloat(nil, f)
		if !json.Valid(text) {
			t.Fatalf("%s is not JSON", text)
		}
		got, err := scannerOf(string(text)).Float()
		if f != f {
			f = nan
		}
		if err != nil || math.Float32bits(got) != math.Float32bits(f) {
			t.Errorf("%s: %x, %v, want %x", text, got, err, f)
		}
	})
}

func TestAppendString(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.String().Draw(t, "text")
		if got, err := scannerOf(string(AppendString(nil, want))).String(); got != want || err != nil {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	})
}

// tree reads a value as json.Decoder.UseNumber does.
func tree(s *Scanner) (value any, err error) {
	switch s.Kind() {
	case Object:
		m := map[string]any{}
		err = s.Object(func(name []byte) error {
			key := string(name)
			m[key], err = tree(s)
			return err
		})
		return m, err
	case Array:
		a := []any{}
		err = s.Array(func(int) error {
			x, err := tree(s)
			a = append(a, x)
			return err
		})
		return a, err
	case String:
		return s.String()
	case Bool:
		return s.Bool()
	case Null:
		return nil, s.Skip()
	}
	raw, err := s.Raw()
	return json.Number(raw), err
}

// whole is the error of reading a value if something follows it.
func whole(s *Scanner, err error) error {
	if err == nil && s.Kind() != End {
		err = errors.New("something follows")
	}
	return err
}

// special matches NaN and the infinities, and strings, in which these are none.
var special = regexp.MustCompile(`(?s)NaN|Infinity|"([^"\\]|\\.)*"`)

// withoutSpecials returns text with 0 in place of NaN and the infinities.
func withoutSpecials(text []byte) []byte {
	return special.ReplaceAllFunc(text, func(found []byte) []byte {
		if found[0] == '"' {
			return found
		}
		return []byte("0")
	})
}

// repeats reports whether an object in the next value has two fields of one name.
func repeats(d *json.Decoder) (found bool) {
	begin, _ := must.Get(d.Token()).(json.Delim)
	if begin == 0 {
		return false
	}
	names := make(map[json.Token]bool)
	for d.More() {
		if begin == '{' {
			name := must.Get(d.Token())
			found = found || names[name]
			names[name] = true
		}
		found = repeats(d) || found
	}
	must.Get(d.Token()) // the end
	return found
}

// decoder returns one that keeps numbers as they are.
func decoder(data []byte) *json.Decoder {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d
}

// FuzzScan compares every way to read a value with encoding/json.
func FuzzScan(f *testing.F) {
	for _, seed := range []string{
		`{"token_ids": [1, 2], "logprobs": [-0.5, -1.2345678e-05, NaN], "a\u00e9\ud83d\ude00": "\n\"x", "m": [true, 0]}`,
		`[1, -0, 123456789, 2147483648, 0.1, 1e400]`, `[0.12345678901234567, 12345678.12345678, "-Infinity"]`,
		`[true,false,1,0,1.0]`, `"\ud800\u0041\xff` + "\xff" + `"`, ` [[], {}, null , -Infinity ] `, `{"a":1,"a":2}`, `[1,]`, `[01]`, `nul`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		valid := json.Valid(data)
		var s Scanner
		s.Reset(data)
		err := whole(&s, s.Skip())
		if err != nil {
			if text := err.Error(); strings.ContainsAny(text, "\n\x1b") || len(text) > 1000 {
				t.Errorf("error is not one short line: %q", text)
			}
			if valid {
				t.Fatalf("%q: %v", data, err)
			}
			return
		}
		if !valid && !json.Valid(withoutSpecials(data)) {
			t.Fatalf("%q is accepted", data)
		}

		s.Reset(data)
		got, err := tree(&s)
		if valid {
			var want any
			must.Do(decoder(data).Decode(&want))
			switch {
			case repeats(decoder(data)):
				if err == nil || !strings.Contains(err.Error(), "twice") {
					t.Errorf("%q: two fields of one name: %v", data, err)
				}
			case err != nil:
				t.Errorf("%q: %v", data, err)
			case !reflect.DeepEqual(got, want):
				t.Errorf("%q: %q, want %q", data, got, want)
			}
		}
		compareArray(t, data, (*Scanner).Floats, func(f *float32) bool {
			return !math.IsNaN(float64(*f)) && !math.IsInf(float64(*f), 0)
		})
		compareArray(t, data, (*Scanner).Int32s, nil)
		compareArray(t, data, (*Scanner).Bools, func(*bool) bool { return !bytes.ContainsAny(data, "01") })
	})
}

// compareArray compares how an array is read with encoding/json. comparable reports
// whether an element is one that encoding/json can have read.
func compareArray[T comparable](t *testing.T, data []byte, read func(*Scanner) ([]T, error), comparable func(*T) bool) {
	t.Helper()
	var s Scanner
	s.Reset(data)
	got, err := read(&s)
	err = whole(&s, err)
	var want []*T
	wantErr := json.Unmarshal(data, &want)
	if wantErr == nil && want != nil && !slices.Contains(want, nil) {
		if err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		for i := range want {
			if got[i] != *want[i] {
				t.Errorf("%q: element %d is %v, want %v", data, i, got[i], *want[i])
			}
		}
		return
	}
	if err != nil {
		return
	}
	for i := range got { // what encoding/json does not take
		if comparable != nil && !comparable(&got[i]) {
			return
		}
	}
	t.Errorf("%q is read as %v", data, got)
}

// FuzzNumber compares numbers with strconv.
func FuzzNumber(f *testing.F) {
	for _, seed := range []string{"0", "-1.2345678", "1.2345678806304932e-05", "16777217", "9007199791611905", "1e39",
		"-0.0", "1e-400"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !json.Valid([]byte(text)) || strings.Trim(text, "0123456789.eE+-") != "" {
			return
		}
		checkFloat(t, text)
	})
}
