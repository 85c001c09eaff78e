package rollout

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/seed621a2839/reweight/internal/atomicfile"
	"github.com/seed621a2839/reweight/internal/printable"
)

// standardInput is the name that stands for it.
const standardInput = "-"

// shownName returns the name of a file as errors spell it.
func shownName(name string) string {
	if name == standardInput {
		return "standard input"
	}
	return printable.Text(name)
}

// Files returns the names of the files that Open reads for these names, in its order, and
// sentences about what in directories is left out. Each file must be there, and may be
// named once.
func Files(names ...string) (files, warnings []string, err error) {
	if len(names) == 0 {
		return nil, nil, errors.New("rollout: no file is named")
	}
	for _, name := range names {
		if name == standardInput {
			files = append(files, name)
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			return nil, nil, inContext(shownName(name), atomicfile.Cause(err))
		}
		if !info.IsDir() {
			if err := checkReadable(info); err != nil {
				return nil, nil, inContext(shownName(name), err)
			}
			files = append(files, name)
			continue
		}
		inside, others, directories, err := filesIn(name)
		if err != nil {
			return nil, nil, err
		}
		files = append(files, inside...)
		if len(others) > 0 {
			warnings = append(warnings, fmt.Sprintf("%s: left out: %s: name them too if they are rollouts.",
				shownName(name), countOthers(others)))
		}
		if directories > 0 {
			warnings = append(warnings, fmt.Sprintf("%s: the directories in it (%d) are not read: name them too if they belong to the same batch.", shownName(name), directories))
		}
	}
	return files, warnings, checkDistinct(files)
}

// checkDistinct returns an error if two names are names of one file, whose trajectories
// would count twice.
func checkDistinct(files []string) error {
	// One file has one size and one time. What tells files apart for certain, and takes more
	// memory, is asked for again where these are equal.
	type state struct {
		size int64
		time int64
	}
	seen := make(map[string]bool, len(files))
	alike := make(map[state][]string)
	for _, name := range files {
		clean := filepath.Clean(name)
		if seen[clean] {
			return fmt.Errorf("%s: named twice", shownName(name))
		}
		seen[clean] = true
		info, err := os.Stat(name)
		if name == standardInput || err != nil {
			continue // what opens it has the error
		}
		of := state{info.Size(), info.ModTime().UnixNano()}
		for _, other := range alike[of] {
			if before, err := os.Stat(other); err == nil && os.SameFile(info, before) {
				return fmt.Errorf("%s: named twice: %s is the same file", shownName(name), shownName(other))
			}
		}
		alike[of] = append(alike[of], name)
	}
	return nil
}

// extensions are of the files that are read in a directory, before .gz or .zst.
// The last are of formats that are refused with a word on what to do.
var extensions = []string{".safetensors", ".npz", ".zip", ".npy", ".json", ".jsonl", ".ndjson", ".sse", ".pt", ".pth",
	".pkl", ".pickle", ".parquet"}

// extension returns how the name of a file ends, before .gz or .zst.
func extension(name string) string {
	name = strings.ToLower(name)
	return filepath.Ext(strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".zst"))
}

// countOthers names the first of the files that do not have an extension of rollouts.
func countOthers(others []string) string {
	if len(others) == 1 {
		return "1 file whose name ends in no extension of rollouts, " + quote(others[0])
	}
	return fmt.Sprintf("%d files whose names end in no extension of rollouts, the first %s", len(others),
		quote(others[0]))
}

// filesIn returns the paths of the files in a directory, in the order of their names,
// without those whose name begins with a dot. Others are the names of those that have no
// extension of rollouts. directories counts the directories in it.
func filesIn(dir string) (files, others []string, directories int, err error) {
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return nil, nil, 0, inContext(shownName(dir), atomicfile.Cause(err))
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		path := filepath.Join(dir, entry.Name())
		info, err := os.Stat(path) // of what a link points to
		switch {
		case err == nil && info.IsDir():
			directories++
			continue
		case !slices.Contains(extensions, extension(path)):
			others = append(others, entry.Name())
			continue
		case err != nil:
			return nil, nil, 0, inContext(shownName(path), atomicfile.Cause(err))
		}
		if err := atomicfile.CheckRegular(info); err != nil {
			return nil, nil, 0, inContext(shownName(path), err)
		}
		files = append(files, path)
	}
	if len(files) == 0 {
		problem := "the directory has no files of rollouts"
		if len(others) > 0 {
			problem += ", but " + countOthers(others) + ": name them if they are rollouts"
		}
		if directories > 0 {
			problem += fmt.Sprintf(": the directories in it (%d) are not searched: name them, or the files in them", directories)
		}
		return nil, nil, 0, fmt.Errorf("%s: %s", shownName(dir), problem)
	}
	return files, others, directories, nil
}

// checkReadable returns an error if the file is neither a regular one nor a pipe.
func checkReadable(info fs.FileInfo) error {
	if info.Mode().Type() == fs.ModeNamedPipe {
		return nil
	}
	return atomicfile.CheckRegular(info)
}

// A stream is the content of one file, or of standard input, decompressed. Its
// errors do not name the file: who reads it puts the name before them.
type stream struct {
	*bufio.Reader

	// file is the file itself, of size bytes, if it is a regular file that is not
	// compressed. A format that needs other bytes than the next ones uses its ReadAt.
	// Else it is nil, and the format reads the stream by content.
	file *os.File
	size int64
	raw  *counter // of the bytes of the file that were read

	closers []func() error // in the order in which they are called
}

// openStream opens the file of that name. Its error does not name the file.
func openStream(name string) (*stream, error) {
	s := new(stream)
	input := os.Stdin
	if name != standardInput {
		file, info, err := openFile(name, checkReadable)
		if err != nil {
			return nil, err
		}
		if info.Mode().IsRegular() {
			s.file, s.size = file, info.Size()
		}
		s.closers = append(s.closers, file.Close)
		input = file
	}
	if err := s.decompress(input); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// openFile opens a file that check accepts, and returns what it is. It is checked before it
// is opened, because opening a device can have effects, and again afterwards, because the
// path can have become the path of another file in between.
func openFile(name string, check func(fs.FileInfo) error) (*os.File, fs.FileInfo, error) {
	info, err := os.Stat(name)
	if err == nil {
		err = check(info)
	}
	if err != nil {
		return nil, nil, atomicfile.Cause(err)
	}
	file, err := os.Open(name) // of a pipe, it waits for a writer
	if err != nil {
		return nil, nil, atomicfile.Cause(err)
	}
	if info, err = file.Stat(); err == nil {
		err = check(info)
	}
	if err != nil {
		file.Close()
		return nil, nil, atomicfile.Cause(err)
	}
	return file, info, nil
}

const bufferSize = 1 << 16 // of a stream, in bytes

// decompress sets the reader of the stream to one of the input's content.
func (s *stream) decompress(input io.Reader) error {
	s.raw = &counter{r: input}
	s.Reader = bufio.NewReaderSize(s.raw, bufferSize)
	head, err := s.peek(4)
	if err != nil {
		return err
	}
	e := &expansion{raw: s.raw, buffer: s.Reader}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		r, err := gzip.NewReader(s.Reader)
		if err != nil {
			return compressed("gzip", err)
		}
		r.Multistream(false)
		e.format, e.r = "gzip", &gzipMembers{r, s.Reader}
	case isZstandard(head):
		last := &lastBytes{r: s.Reader}
		r, err := zstd.NewReader(last, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return compressed("Zstandard", err)
		}
		e.format, e.r = "Zstandard", &zstdFrames{r, last}
		s.closers = append(s.closers, func() error { r.Close(); return nil })
	default:
		return nil
	}
	s.file, s.size = nil, 0
	s.Reader = bufio.NewReaderSize(e, bufferSize)
	return nil
}

// gzipMembers reads the members of gzip data, each of which is data of its own. What archivers
// pad it with, zeros, can stand behind each.
type gzipMembers struct {
	member *gzip.Reader
	in     *bufio.Reader
}

func (g *gzipMembers) Read(p []byte) (int, error) {
	for {
		n, err := g.member.Read(p)
		if err != io.EOF {
			return n, err
		}
		if err = g.next(); n > 0 || err != nil { // else a member is empty
			return n, err
		}
	}
}

// next begins the next member. It returns io.EOF if there is none.
func (g *gzipMembers) next() error {
	if err := skipZeros(g.in); err != nil {
		return err
	}
	if magic, _ := g.in.Peek(2); !bytes.HasPrefix([]byte{0x1f, 0x8b}, magic) {
		return errBehind
	}
	err := g.member.Reset(g.in)
	g.member.Multistream(false)
	return err
}

// zstdFrames reads frames as gzipMembers does, of which the decoder reads all but the zeros.
type zstdFrames struct {
	decoder *zstd.Decoder
	in      *lastBytes
}

func (z *zstdFrames) Read(p []byte) (int, error) {
	n, err := z.decoder.Read(p)
	if !errors.Is(err, zstd.ErrMagicMismatch) { // of a frame after the first
		return n, err
	}
	if z.in.last != [4]byte{} {
		return n, errBehind
	}
	if err := skipZeros(z.in.r); err != nil {
		return n, err
	}
	if head, _ := z.in.r.Peek(4); !isZstandard(head) {
		return n, errBehind
	}
	return n, z.decoder.Reset(z.in)
}

// lastBytes keeps the last bytes that were read.
type lastBytes struct {
	r    *bufio.Reader
	last [4]byte
}

func (l *lastBytes) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	all := append(l.last[:len(l.last):len(l.last)], p[max(0, n-len(l.last)):n]...)
	copy(l.last[:], all[len(all)-len(l.last):])
	return n, err
}

// errBehind is the error of a compressed file with something else at its end.
var errBehind = errors.New("other bytes follow its end")

// skipZeros skips zeros. It returns io.EOF if nothing follows.
func skipZeros(in *bufio.Reader) error {
	for {
		b, err := in.ReadByte()
		if err != nil {
			return err
		}
		if b != 0 {
			return in.UnreadByte()
		}
	}
}

// maxWindow bounds how far back in the data a Zstandard stream may point, and so the
// memory for it, in bytes. It is the limit of the command zstd too.
const maxWindow = 1 << 27

func isZstandard(head []byte) bool {
	frame := bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd})
	skippable := len(head) >= 4 && head[0]&0xf0 == 0x50 && bytes.Equal(head[1:4], []byte{0x2a, 0x4d, 0x18})
	return frame || skippable
}

// peek returns the next n bytes, or all there are if they are fewer, without reading
// on. n is at most bufferSize.
func (s *stream) peek(n int) ([]byte, error) {
	head, err := s.Peek(n)
	if err == io.EOF {
		err = nil
	}
	return head, atomicfile.Cause(err)
}

// content returns all that is left of the stream.
func (s *stream) content() ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(s, maxContent+1))
	if err == nil && len(data) > maxContent {
		err = fmt.Errorf("more than %d bytes, which is the limit for this format in a compressed file or a pipe: make a file of it that is not compressed", maxContent)
	}
	return data, atomicfile.Cause(err)
}

// maxContent bounds the memory for a file that cannot be read in pieces, in bytes.
const maxContent = 1 << 30

func (s *stream) close() error {
	var first error
	for i := len(s.closers) - 1; i >= 0; i-- {
		if err := s.closers[i](); first == nil {
			first = atomicfile.Cause(err)
		}
	}
	s.closers = nil
	return first
}

// A counter counts the bytes that are read.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, atomicfile.Cause(err)
}

// An expansion is decompressed data, of which there may be no more than maxRatio times
// as much as compressed data, once there is more than freeExpansion. A small file that
// expands without an end is then an error.
type expansion struct {
	format string
	r      io.Reader
	raw    *counter      // of the compressed data
	buffer *bufio.Reader // of which this much is not used yet
	n      int64         // bytes read
}

const (
	freeExpansion = 64 << 20
	maxRatio      = 250 // texts and numbers take 3 to 20 times less, and gzip can reach 1032
)

func (e *expansion) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	e.n += int64(n)
	if err := checkRatio(e.n, e.raw.n-int64(e.buffer.Buffered()), e.format); err != nil {
		return 0, err
	}
	if err != io.EOF {
		err = compressed(e.format, err)
	}
	return n, err
}

// checkRatio returns an error if so many bytes are too many to come of compressed data.
func checkRatio(expanded, compressed int64, format string) error {
	if expanded > freeExpansion && expanded/maxRatio > compressed {
		return fmt.Errorf("%d bytes of %s data expand to more than %d times as many, want at most that", compressed,
			format, maxRatio)
	}
	return nil
}

// compressed returns an error of reading compressed data, which says what it is about.
func compressed(format string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the %s data is cut off", format)
	}
	return fmt.Errorf("the %s data cannot be read: %w", format, err)
}
