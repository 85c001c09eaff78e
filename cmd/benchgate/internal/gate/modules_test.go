package gate

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/benchgate/internal/execx"
	"github.com/seed621a2839/reweight/internal/test/must"
)

var gateRuns = flag.Int("gate-runs", 0, "runs of TestModules on the same revision; it measures for real")

// A realModule is one that nobody of this project wrote. Most of them are among those that the most other
// modules import, and their benchmarks need no network.
type realModule struct {
	path, bench string // with the version; -bench
	plants      []plant
}

// A plant makes a function do its work twice in every seventh call.
type plant struct {
	file, header, call string // the line that begins the function, and a call of it in its body
	most, touched      string // patterns: the benchmark that this is most of, and all benchmarks that call it
}

var realModules = []realModule{
	{"github.com/sirupsen/logrus@v1.10.2",
		"^Benchmark(SmallTextFormatter|SmallJSONFormatter|Entry_WithFields)$", []plant{
			{"text_formatter.go", "func (f *TextFormatter) Format(entry *Entry) ([]byte, error) {", "f.Format(entry)", "TextF", "TextF"},
			{"json_formatter.go", "func (f *JSONFormatter) Format(entry *Entry) ([]byte, error) {", "f.Format(entry)", "JSONF", "JSONF"},
			{"entry.go", "func (entry *Entry) WithFields(fields Fields) *Entry {", "entry.WithFields(fields)", "WithFields/valid", "WithFields"},
		}},
	{"github.com/gorilla/mux@v1.8.1", "^Benchmark(Mux|ManyPathVariables|_findQueryKey)$", []plant{
		{"mux.go", "func (r *Router) ServeHTTP(w http.ResponseWriter, req *http.Request) {", "r.ServeHTTP(w, req)", "Mux", "Mux|Many"},
		{"mux.go", "func (r *Router) Match(req *http.Request, match *RouteMatch) bool {", "r.Match(req, match)", "Mux", "Mux|Many"},
		{"regexp.go", "func findFirstQueryKey(rawQuery, key string) (value string, ok bool) {", "findFirstQueryKey(rawQuery, key)", "Key/2", "Key"},
	}},
	{"github.com/BurntSushi/toml@v1.6.0", "^Benchmark(Example|Escapes|Key)$", []plant{
		{"parse.go", "func parse(data string) (p *parser, err error) {", "parse(data)", "decode", "decode"},
		{"encode.go", "func (enc *Encoder) Encode(v any) error {", "enc.Encode(v)", "encode", "encode"},
		{"parse.go", "func (p *parser) replaceEscapes(it item, str string) string {", "p.replaceEscapes(it, str)", "Escapes", "Escapes|decode"},
	}},
	{"github.com/golang-jwt/jwt/v5@v5.3.1", "^Benchmark(HS256Signing|ECDSAParsing|Token_SigningString)$", []plant{
		{"hmac.go", "func (m *SigningMethodHMAC) Sign(signingString string, key any) ([]byte, error) {", "m.Sign(signingString, key)", "HS256", "HS256"},
		{"ecdsa_utils.go", "func ParseECPrivateKeyFromPEM(key []byte) (*ecdsa.PrivateKey, error) {", "ParseECPrivateKeyFromPEM(key)", "ECDSAP", "ECDSAP"},
		{"token.go", "func (t *Token) SigningString() (string, error) {", "t.SigningString()", "Token_", "Token_|HS256"},
	}},
	{"github.com/spf13/cast@v1.10.0", "^Benchmark(ToInt|CommonTimeLayouts|Cast)$", []plant{
		{"time.go", "func StringToDateInDefaultLocation(s string, location *time.Location) (time.Time, error) {", "StringToDateInDefaultLocation(s, location)", "Time", "Time"},
		{"zz_generated.go", "func ToBoolSliceE(i any) ([]bool, error) {", "ToBoolSliceE(i)", "BoolSlice", "BoolSlice"},
		{"slice.go", "func ToStringSliceE(i any) ([]string, error) {", "ToStringSliceE(i)", "StringSlice", "StringSlice"},
	}},
	{"github.com/go-playground/validator/v10@v10.30.6",
		"^Benchmark(FieldSuccess|FieldFailure|StructSimpleSuccess|Oneof)$", []plant{
			{"validator_instance.go", "func (v *Validate) VarCtx(ctx context.Context, field interface{}, tag string) (err error) {", "v.VarCtx(ctx, field, tag)", "FieldS", "Field"},
			{"validator_instance.go", "func (v *Validate) StructCtx(ctx context.Context, s interface{}) (err error) {", "v.StructCtx(ctx, s)", "Simple", "Simple|Oneof"},
			{"baked_in.go", "func isOneOf(fl FieldLevel) bool {", "isOneOf(fl)", "Oneof", "Oneof"},
		}},
	{"github.com/Masterminds/semver/v3@v3.5.0", "^Benchmark(NewVersionSimple|StrictNewVersionPre|NewConstraintCaret|CheckVersionRange)$", []plant{
		{"version.go", "func NewVersion(v string) (*Version, error) {", "NewVersion(v)", "NewVersionSimple", "NewVersionSimple|NewConstraint"},
		{"version.go", "func StrictNewVersion(v string) (*Version, error) {", "StrictNewVersion(v)", "Strict", "Strict"},
		{"constraints.go", "func (cs Constraints) Check(v *Version) bool {", "cs.Check(v)", "Check", "Check"},
	}},
	{"github.com/miekg/dns@v1.1.73", "^Benchmark(PackDomainName|UnpackDomainName|PackMX|UnpackMX|MsgLength)$", []plant{
		{"msg.go", "func UnpackDomainName(msg []byte, off int) (string, int, error) {", "UnpackDomainName(msg, off)", "UnpackD", "Unpack"},
		{"msg.go", "func packDomainName(s string, msg []byte, off int, compression compressionMap, compress bool) (off1 int, err error) {",
			"packDomainName(s, msg, off, compression, compress)", "PackD", "Pack"},
		{"msg.go", "func msgLenWithCompressionMap(dns *Msg, compression map[string]struct{}) int {", "msgLenWithCompressionMap(dns, compression)", "MsgL", "MsgL"},
	}},
	{"github.com/valyala/fasttemplate@v1.2.2",
		"^Benchmark(FastTemplateExecuteString|TemplateReset|ExecuteFunc)$", []plant{
			{"template.go", "func (t *Template) ExecuteString(m map[string]interface{}) string {", "t.ExecuteString(m)", "String", "String"},
			{"template.go", "func (t *Template) Reset(template, startTag, endTag string) error {", "t.Reset(template, startTag, endTag)", "Reset", "Reset"},
			{"template.go", "func ExecuteFunc(template, startTag, endTag string, w io.Writer, f TagFunc) (int64, error) {",
				"ExecuteFunc(template, startTag, endTag, w, f)", "kExecuteFunc", "kExecuteFunc"},
		}},
	{"github.com/tidwall/gjson@v1.20.2", "^Benchmark(Valid|ValidBytes|GoStdlibValidBytes)$", []plant{
		{"gjson.go", "func Valid(json string) bool {", "Valid(json)", "kValid$", "kValid$"},
		{"gjson.go", "func ValidBytes(json []byte) bool {", "ValidBytes(json)", "kValidBytes", "kValidBytes"},
		{"gjson.go", "func validpayload(data []byte, i int) (outi int, ok bool) {", "validpayload(data, i)", "kValid$", "kValid"},
	}},
}

const benchstat = "golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da"

// TestModules runs the gate on modules that nobody of this project wrote, as their maintainers would do:
// with the same revision in both versions, and with plants, by the time alone. A line of the log tells of
// one of these, and of what benchstat marks as slower in go test -count 10, of a quarter of a second each.
//
//	go test ./cmd/benchgate/internal/gate -run TestModules -gate-runs 2 -timeout 6h -v
//	go test ./cmd/benchgate/internal/gate -run TestModules/toml/Encode -gate-runs 2 -v
func TestModules(t *testing.T) {
	if *gateRuns == 0 {
		t.Skip("it takes hours, a machine and the module proxy: -gate-runs 2")
	}
	exe := buildGate(t, inDir(t, ".", "git", "rev-parse", "--show-toplevel"))
	for _, m := range realModules {
		name, _, _ := strings.Cut(strings.TrimPrefix(m.path, "github.com/"), "@")
		t.Run(path.Base(strings.TrimRight(name, "/v0123456789")), func(t *testing.T) {
			dir := copyOf(t, m.path)
			files := t.TempDir()
			goTest := func(t *testing.T, name string) (file string, took time.Duration) {
				begin := time.Now()
				text := inDir(t, dir, "go", "test", "-run", "^$", "-bench", m.bench, "-count", "10", "-benchtime",
					"250ms", "-cpu", "1", ".")
				file = filepath.Join(files, name)
				put(file, text)
				return file, time.Since(begin)
			}
			old := sync.OnceValue(func() string { file, _ := goTest(t, "old"); return file })
			measure := func(t *testing.T, p plant) {
				before := old()
				r := runGate(t, exe, dir, "-base", "HEAD", "-metrics", "none", "-bench", m.bench, ".")
				after, took := goTest(t, "new")
				text := inDir(t, ".", "go", "run", benchstat, "-format", "csv", before, after)
				t.Logf("%s: %d benchmarks, status %d, %.0f s: %s; benchstat, %.0f s: %s", t.Name(), len(r.Results),
					r.status, r.seconds, p.judge(r.regressions), 2*took.Seconds(), p.judge(slowerByBenchstat(text)))
			}
			for range *gateRuns {
				t.Run("same", func(t *testing.T) { measure(t, plant{}) })
			}
			for _, p := range m.plants {
				t.Run(p.function(), func(t *testing.T) {
					p.plant(t, dir)
					defer inDir(t, dir, "git", "checkout", "--quiet", ".")
					measure(t, p)
				})
			}
		})
	}
}

// function is the name of the function.
func (p plant) function() string {
	name, _, _ := strings.Cut(p.call, "(")
	return name[strings.LastIndex(name, ".")+1:]
}

// judge tells what is right and what is wrong about the benchmarks that were named.
func (p plant) judge(named []string) string {
	found, wrong := "not found", 0
	for _, name := range named {
		if p.call == "" || !regexp.MustCompile(p.touched).MatchString(name) {
			wrong++
		} else if regexp.MustCompile(p.most).MatchString(name) {
			found = "found"
		}
	}
	if p.call == "" {
		return fmt.Sprintf("%d false", wrong)
	}
	return fmt.Sprintf("%s, %d false", found, wrong)
}

// slowerByBenchstat returns the benchmarks whose time benchstat marks as longer, in tables in CSV.
func slowerByBenchstat(tables string) (names []string) {
	unit := ""
	for line := range strings.Lines(tables) {
		f := strings.Split(line, ",")
		switch {
		case len(f) < 7:
		case f[0] == "":
			unit = f[1]
		case unit == "sec/op" && f[0] != "geomean" && strings.HasPrefix(f[5], "+"):
			names = append(names, "Benchmark"+f[0])
		}
	}
	return names
}

// plant makes the edit in the working tree.
func (p plant) plant(t *testing.T, dir string) {
	name := filepath.Join(dir, filepath.FromSlash(p.file))
	text := string(must.Get(os.ReadFile(name)))
	if n := strings.Count(text, p.header+"\n"); n != 1 {
		t.Fatalf("%s: %d times %q", p.file, n, p.header)
	}
	once := func(s string) string { return strings.Replace(s, p.function()+"(", p.function()+"Once(", 1) }
	ret := ""
	if !strings.HasSuffix(p.header, ") {") || strings.Contains(p.header, ") (") {
		ret = "return "
	}
	put(name, strings.Replace(text, p.header, fmt.Sprintf(`%s
	if again++; again%%7 == 0 {
		%s
	}
	%s%[2]s
}

var again int

%[4]s`, p.header, once(p.call), ret, once(p.header)), 1))
}

// inDir runs a program in a directory, and returns what it prints.
func inDir(t *testing.T, dir, name string, args ...string) string {
	return strings.TrimSpace(must.Get(execx.Run(t.Context(), dir, execx.Environ(), name, args...)))
}

// buildGate builds the gate of a working tree of this project.
func buildGate(t *testing.T, top string) string {
	exe := filepath.Join(t.TempDir(), "benchgate.exe")
	inDir(t, top, "go", "build", "-o", exe, "./cmd/benchgate")
	return exe
}

// A gateRun is what a run of the gate reported.
type gateRun struct {
	compared
	status      int
	seconds     float64
	regressions []string
}

// runGate runs the gate in a directory, and prints what it says of each benchmark.
func runGate(t *testing.T, exe, dir string, args ...string) (r gateRun) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.json")
	cmd := exec.CommandContext(t.Context(), exe, append([]string{"-json", file}, args...)...)
	cmd.Dir = dir
	begin := time.Now()
	out, err := cmd.CombinedOutput()
	r.seconds = time.Since(begin).Seconds()
	if r.status = cmd.ProcessState.ExitCode(); r.status == 2 {
		t.Errorf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &r.compared)
	}
	if err != nil {
		t.Errorf("no report: %v\n%s", err, out)
	}
	count := map[string]int{}
	for _, q := range r.Results {
		count[q.Verdict]++
		if q.Verdict == "regression" {
			r.regressions = append(r.regressions, q.Benchmark)
		}
		e := cmp.Or(q.Ratio, &bench.Estimate{})
		t.Logf("  %s: %s, %.3f times (%.3f to %.3f); %s", q.Benchmark, q.Verdict, e.Median, e.Lo, e.Hi, q.Message)
	}
	t.Logf("status %d, %s, %.0f s, %v", r.status, r.Verdict, r.seconds, count)
	return r
}
