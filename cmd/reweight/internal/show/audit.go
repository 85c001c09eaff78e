package show

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight/diagnose"
	"github.com/seed621a2839/reweight/internal/printable"
)

// auditName is the name that python -m reweight audit and its trainers give an audit's file.
const auditName = "audit.json"

// maxAudit bounds the bytes of an audit's file.
const maxAudit = 1 << 28

// FindAudit returns the name of the audit that a file is, or that lies in a directory, and "" if
// there is none.
func FindAudit(name string) string {
	info, err := os.Stat(name)
	if err == nil && info.IsDir() {
		name = filepath.Join(name, auditName)
		info, err = os.Stat(name)
	}
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	file, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer file.Close()
	begin := make([]byte, 256)
	n, _ := io.ReadFull(file, begin)
	rest, isObject := bytes.CutPrefix(bytes.TrimSpace(begin[:n]), []byte("{"))
	if isObject && bytes.HasPrefix(bytes.TrimSpace(rest), []byte(`"audit"`)) {
		return name
	}
	return ""
}

// ReadAudit reads the file of an audit and computes its report.
func ReadAudit(name string) (*diagnose.AuditReport, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var found struct{ Audit *diagnose.Audit }
	content, err := io.ReadAll(io.LimitReader(file, maxAudit+1))
	if err == nil && len(content) > maxAudit {
		err = fmt.Errorf("more than %s bytes, want an audit", humanize.Comma(maxAudit))
	}
	if err == nil {
		err = json.Unmarshal(content, &found)
	}
	if err == nil && found.Audit == nil {
		err = errors.New(`"audit" is null, want an audit`)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %s", printable.Text(name), printable.Line(err.Error()))
	}
	report, err := found.Audit.Report()
	if err != nil {
		return nil, fmt.Errorf("%s: the audit's %s", printable.Text(name),
			strings.TrimPrefix(err.Error(), "reweight: "))
	}
	return report, nil
}

// WriteAudit prints what an audit says, as python -m reweight audit does.
func WriteAudit(w io.Writer, r *diagnose.AuditReport) error {
	var b strings.Builder
	line := func(format string, args ...any) { b.WriteString(printable.Line(fmt.Sprintf(format, args...)) + "\n") }
	line("%d prompts with different rewards, %.0f answers each; %d others are left out.", r.Prompts,
		r.Answers, r.LeftOut)
	line("Of the power of one answer's gradient, the signal is %s.", r.Signal)
	line("")
	var tokens int64
	for _, p := range r.Parts {
		tokens += p.Tokens
	}
	rows := [][]string{{"part", "tokens", "signal", "noise", "best weight"}}
	for i, p := range r.Parts {
		best := "1"
		if i > 0 {
			best = p.Best.String()
		}
		share := fmt.Sprintf("%.1f%%", 100*(float64(p.Tokens)/float64(cmp.Or(tokens, 1))))
		rows = append(rows, []string{p.Name, share, p.Signal.String(), p.Noise.String(), best})
	}
	auditTable(line, rows)
	line("")
	head := []string{"weights, over equal ones", fmt.Sprintf("at %.0f answers", r.Answers)}
	for _, k := range diagnose.AuditTimes {
		head = append(head, "at "+humanize.Comma(int64(math.RoundToEven(r.Answers*k))))
	}
	rows = [][]string{head}
	measured := r.Measured
	measured.Name = "best, on other prompts"
	for _, e := range append([]diagnose.AuditEfficiency{measured}, r.Efficiencies...) {
		row := []string{e.Name, e.Here.String()}
		for _, x := range e.At {
			row = append(row, figure(x, e.Here.Known()))
		}
		rows = append(rows, row)
	}
	auditTable(line, rows)
	if len(r.ByLayer) > 0 {
		line("")
		head := []string{"block"}
		for _, p := range r.Parts {
			head = append(head, "signal of "+p.Name)
		}
		rows = [][]string{append(head, "best weights")}
		for i, parts := range r.ByLayer {
			row, best := []string{r.Layers[i]}, []string{"1"}
			for k, p := range parts {
				row = append(row, p.Signal.String())
				if k > 0 {
					best = append(best, figure(p.Best.Value, p.Best.Known()))
				}
			}
			rows = append(rows, append(row, strings.Join(best, ", ")))
		}
		auditTable(line, rows)
	}
	line("")
	line("%s", r.Advice)
	line("This is about the model as it is now, on these prompts: a few steps later it may say another thing, so audit again as it")
	line("trains. It says nothing of the learning rate, and a better step need not be a better run: train with equal weights too.")
	line("Blocks count alike, each divided by its own power, as Adam would.")
	_, err := io.WriteString(w, b.String())
	return err
}

func figure(x float64, known bool) string {
	if !known || x-x != 0 {
		return "?"
	}
	return fmt.Sprintf("%.2f", x)
}

// auditTable writes rows in columns.
func auditTable(line func(format string, args ...any), rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			row[i] = printable.Line(cell)
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	for _, row := range rows {
		text := ""
		for i, cell := range row {
			text += cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2)
		}
		line("%s", strings.TrimRight(text, " "))
	}
}
