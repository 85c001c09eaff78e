package rollout

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/seed621a2839/reweight/internal/test/must"
)

func gzipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	must.Get(w.Write(data))
	must.Do(w.Close())
	return out.Bytes()
}

var encoder = sync.OnceValues(func() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
})

func zstandard(t testing.TB, data []byte) []byte {
	t.Helper()
	w := must.Get(encoder())
	return w.EncodeAll(data, nil)
}

// streamOf returns a stream of data that comes from a pipe.
func streamOf(data []byte) (*stream, error) {
	s := new(stream)
	return s, s.decompress(bytes.NewReader(data))
}

// readStream returns what a stream of data decompresses to.
func readStream(data []byte) ([]byte, error) {
	s, err := streamOf(data)
	if err != nil {
		return nil, err
	}
	defer s.close()
	return io.ReadAll(s)
}

// writeFiles writes files into a new directory and returns its path. A name that ends in
// a slash is the path of a directory.
func writeFiles(t testing.TB, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		folder, file := filepath.Split(filepath.Join(dir, filepath.FromSlash(name)))
		if strings.HasSuffix(name, "/") {
			folder, file = filepath.Join(dir, name), ""
		}
		must.Do(os.MkdirAll(folder, 0o777))
		if file != "" {
			must.Do(os.WriteFile(filepath.Join(folder, file), data, 0o666))
		}
	}
	return dir
}

func TestDecompress(t *testing.T) {
	text := []byte(strings.Repeat("some text that is compressed ", 10000))
	half := len(text) / 2
	skippable := []byte{0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'a', 'b', 'c'}
	for name, data := range map[string][]byte{
		"plain":                       text,
		"gzip":                        gzipped(t, text),
		"gzip in two parts":           slices.Concat(gzipped(t, text[:half]), gzipped(t, text[half:])),
		"Zstandard":                   zstandard(t, text),
		"Zstandard in two frames":     slices.Concat(zstandard(t, text[:half]), zstandard(t, text[half:])),
		"Zstandard after other bytes": slices.Concat(skippable, zstandard(t, text)),
	} {
		if got, err := readStream(data); err != nil || !bytes.Equal(got, text) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	for _, short := range []string{"", "a", "\x1f", "\x28\xb5\x2f"} {
		if got, err := readStream([]byte(short)); err != nil || string(got) != short {
			t.Errorf("%q: %q, %v", short, got, err)
		}
	}
}

// Data that ends early is an error wherever it ends, and so is a changed byte of a
// checksum.
func TestCutOff(t *testing.T) {
	text := []byte(strings.Repeat("some text that is compressed ", 20))
	for format, data := range map[string][]byte{"gzip": gzipped(t, text), "Zstandard": zstandard(t, text)} {
		for n := 4; n < len(data); n++ {
			want := fmt.Sprintf("the %s data is cut off", format)
			if _, err := readStream(data[:n]); err == nil || err.Error() != want {
				t.Errorf("%s, %d of %d bytes: %v", format, n, len(data), err)
			}
		}
		data[len(data)-2] ^= 1
		want := fmt.Sprintf("the %s data cannot be read: ", format)
		if _, err := readStream(data); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s with a wrong checksum: %v", format, err)
		}
	}
}

// Compressed data of nothing can stand anywhere, however often: a writer that flushes makes it.
func TestEmptyMembers(t *testing.T) {
	text := []byte("some text that is compressed")
	for format, compressed := range map[string]func(testing.TB, []byte) []byte{"gzip": gzipped,
		"Zstandard": zstandard} {
		nothing := slices.Repeat(compressed(t, nil), 300)
		s := new(stream)
		must.Do(s.decompress(bytes.NewReader(slices.Concat(nothing, compressed(t, text), nothing, compressed(t, text),
			nothing))))
		if got, err := s.ReadBytes(0); err != io.EOF || !bytes.Equal(got, slices.Repeat(text, 2)) {
			t.Errorf("%s: %q, %v", format, got, err)
		}
	}
}

// Archivers pad compressed data with zeros. Other bytes at its end are called that.
func TestBehindTheEnd(t *testing.T) {
	text := []byte(strings.Repeat("some text that is compressed ", 20))
	for format, data := range map[string][]byte{"gzip": gzipped(t, text), "Zstandard": zstandard(t, text)} {
		least := 1
		if format == "Zstandard" { // fewer bytes are the beginning of a frame
			least = 4
		}
		for n := least; n < 1100; n = n*5/4 + 1 {
			zeros := make([]byte, n)
			if got, err := readStream(slices.Concat(data, zeros)); err != nil || !bytes.Equal(got, text) {
				t.Errorf("%s, %d zeros: %d bytes, %v", format, n, len(got), err)
			}
			if got, err := readStream(slices.Concat(data, zeros, data, zeros)); err != nil ||
				!bytes.Equal(got, slices.Concat(text, text)) {
				t.Errorf("%s, %d zeros behind each of two: %d bytes, %v", format, n, len(got), err)
			}
			want := fmt.Sprintf("the %s data cannot be read: other bytes follow its end", format)
			for _, other := range [][]byte{slices.Repeat([]byte("m"), n), slices.Concat(zeros, []byte("more"))} {
				if _, err := readStream(slices.Concat(data, other)); err == nil || err.Error() != want {
					t.Errorf("%s, %q behind it: %v, want %s", format, other[len(other)-1:], err, want)
				}
			}
			want = fmt.Sprintf("the %s data is cut off", format)
			if _, err := readStream(slices.Concat(data, zeros, data[:len(data)-1])); err == nil || err.Error() != want {
				t.Errorf("%s, %d zeros and a part: %v, want %s", format, n, err, want)
			}
		}
		failing := io.MultiReader(bytes.NewReader(data), iotest.ErrReader(io.ErrClosedPipe))
		s := new(stream)
		must.Do(s.decompress(failing))
		if _, err := io.ReadAll(s); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%s: %v, want the error of the file", format, err)
		}
		s.close()
	}
}

// A small file that expands to many times its size is an error soon, in little memory.
func TestExpansionLimit(t *testing.T) {
	const part, parts = 4 << 20, 3 * freeExpansion / 2 / (4 << 20)
	const size = part * parts
	var z bytes.Buffer
	w := must.Get(gzip.NewWriterLevel(&z, gzip.BestCompression))
	must.Get(w.Write(make([]byte, part)))
	must.Do(w.Close())
	for format, data := range map[string][]byte{"gzip": bytes.Repeat(z.Bytes(), parts),
		"Zstandard": bytes.Repeat(zstandard(t, make([]byte, part)), parts)} {
		s := must.Get(streamOf(data))
		var n int64
		var err error
		memory := allocated(func() { n, err = io.Copy(io.Discard, s) })
		if err == nil || !strings.Contains(err.Error(), format+" data expand to more than 250 times as many") ||
			n > freeExpansion+bufferSize {
			t.Errorf("%s: %d of %d bytes, %v", format, n, size, err)
		}
		if memory > 16<<20 {
			t.Errorf("%s: %d bytes of memory", format, memory)
		}
		s.close()
		s = must.Get(streamOf(data))
		if n, err := io.CopyN(io.Discard, s, freeExpansion); err != nil {
			t.Errorf("%s: %d bytes, which are free, give %v", format, n, err)
		}
		s.close()
	}
}

// A Zstandard frame may not ask for more memory than its limit.
func TestWindowLimit(t *testing.T) {
	// A frame without a content size, whose window is 2^(10+18) bytes, and one raw
	// block of one byte, the last.
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 18 << 3, 1 | 1<<3, 0, 0, 'x'}
	var err error
	memory := allocated(func() { _, err = readStream(frame) })
	if err == nil || !strings.Contains(err.Error(), "window") || memory > 8<<20 {
		t.Errorf("%v, %d bytes of memory", err, memory)
	}
	frame[5] = 10 << 3
	if got, err := readStream(frame); err != nil || string(got) != "x" {
		t.Errorf("with a small window: %q, %v", got, err)
	}
}

func TestExpand(t *testing.T) {
	x := []byte("x")
	dir := writeFiles(t, map[string][]byte{
		"b.jsonl": x, "a.NPZ.gz": x, "c/d.safetensors.zst": x, ".hidden.json": x, "README": x, "a.partial": x, "empty/": nil, "only/directories/": nil, "texts/notes.txt": x,
	})
	at := func(name string) string { return filepath.Join(dir, name) }
	files, warnings, err := Files(at("c"), "-", at("README"), dir)
	want := []string{at("c/d.safetensors.zst"), "-", at("README"), at("a.NPZ.gz"), at("b.jsonl")}
	if err != nil || !slices.Equal(files, want) {
		t.Errorf("%q, %v, want %q", files, err, want)
	}
	left := dir + `: left out: 2 files whose names end in no extension of rollouts, the first "README": name them too if they are rollouts.`
	sentence := dir + ": the directories in it (4) are not read: name them too if they belong to the same batch."
	if !slices.Equal(warnings, []string{left, sentence}) {
		t.Errorf("warnings %q", warnings)
	}
	for _, c := range []struct {
		names []string
		want  string
	}{
		{nil, "rollout: no file is named"},
		{[]string{at("none")}, at("none") + ": no such file or directory"},
		{[]string{at("a.NPZ.gz"), ""}, `"": no such file or directory`},
		{[]string{at("empty")}, at("empty") + ": the directory has no files of rollouts"},
		{[]string{at("texts")}, at("texts") + `: the directory has no files of rollouts, but 1 file whose name ends in no extension of rollouts, "notes.txt": name them if they are rollouts`},
		{[]string{at("only")}, at("only") + ": the directory has no files of rollouts: the directories in it (1) are not searched: name them, or the files in them"},
		{[]string{at("a.NPZ.gz"), dir}, at("a.NPZ.gz") + ": named twice"},
		{[]string{"-", "-"}, "standard input: named twice"},
	} {
		if _, err := (Options{}).Open(c.names...); err == nil || !sameError(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.names, err, c.want)
		}
	}
}

// A file that a link names too is read once.
func TestExpandLinks(t *testing.T) {
	for kind, link := range map[string]func(old, new string) error{"symbolic": os.Symlink, "hard": os.Link} {
		dir := writeFiles(t, map[string][]byte{"a.jsonl": []byte("x"), "b.jsonl": []byte("y"), "c/": nil})
		at := func(name string) string { return filepath.Join(dir, name) }
		if err := link(at("a.jsonl"), at("c/l.jsonl")); err != nil {
			t.Logf("no %s link can be made: %v", kind, err)
			continue
		}
		if _, _, err := Files(at("c"), at("b.jsonl")); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		for _, names := range [][]string{{at("a.jsonl"), at("c/l.jsonl")}, {at("a.jsonl"), at("c")},
			{dir, at("c/l.jsonl")}} {
			want := at("c/l.jsonl") + ": named twice: " + at("a.jsonl") + " is the same file"
			if _, _, err := Files(names...); err == nil || err.Error() != want {
				t.Errorf("%s: %q: %v, want %s", kind, names, err, want)
			}
		}
	}
}

// sameError compares errors but for the words of the system about a missing file.
func sameError(got, want string) bool {
	before, missing := strings.CutSuffix(want, "no such file or directory")
	return got == want || missing && strings.HasPrefix(got, before)
}
