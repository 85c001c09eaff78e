package cli

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
	"github.com/seed621a2839/reweight/internal/printable"
)

// WriteTable prints rows under a header. The first columns are text, aligned left;
// the others are numbers, aligned right. What cannot be printed is escaped.
func WriteTable(w io.Writer, text int, header []string, rows [][]string) error {
	align := make([]tw.Align, len(header))
	for i := range align {
		align[i] = tw.AlignRight
		if i < text {
			align[i] = tw.AlignLeft
		}
	}
	var buf bytes.Buffer
	t := tablewriter.NewTable(&buf,
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders:  tw.BorderNone,
			Symbols:  tw.NewSymbols(tw.StyleASCII),
			Settings: tw.Settings{Separators: tw.SeparatorsNone, Lines: tw.Lines{ShowHeaderLine: tw.On}},
		})),
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithHeaderAutoWrap(tw.WrapNone),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithHeaderAlignmentConfig(tw.CellAlignment{PerColumn: align}),
		tablewriter.WithRowAlignmentConfig(tw.CellAlignment{PerColumn: align}),
		tablewriter.WithTrimSpace(tw.Off),
	)
	if len(header) > 0 {
		t.Header(header)
	}
	safe := make([][]string, len(rows))
	for i, row := range rows {
		for _, cell := range row {
			safe[i] = append(safe[i], printable.Line(cell))
		}
	}
	if err := t.Bulk(safe); err != nil {
		return err
	}
	if err := t.Render(); err != nil {
		return err
	}
	for line := range strings.Lines(buf.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimSpace(line)); err != nil {
			return err
		}
	}
	return nil
}

// Heading prints the title of what follows.
func Heading(w io.Writer, title string) { fmt.Fprintf(w, "\n%s\n\n", title) }

// WriteMarkdown writes a table in GitHub's Markdown. The first columns are text,
// the others numbers.
func WriteMarkdown(w io.Writer, text int, header []string, rows [][]string) error {
	var b strings.Builder
	line := func(cells []string) {
		b.WriteByte('|')
		for _, c := range cells {
			b.WriteString(" " + MarkdownText(c) + " |")
		}
		b.WriteByte('\n')
	}
	line(header)
	b.WriteByte('|')
	for i := range header {
		b.WriteString(map[bool]string{true: " --- |", false: " ---: |"}[i < text])
	}
	b.WriteByte('\n')
	for _, row := range rows {
		line(row)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// MarkdownText returns text for a cell of a table or for a line in Markdown, which
// shows it as it is: it is no tag, no link, no picture, no code and not the end of
// the cell. What cannot be printed is escaped.
func MarkdownText(text string) string {
	return markdownText.Replace(printable.Line(strings.ReplaceAll(text, "\n", " ")))
}

var markdownText = strings.NewReplacer("|", `\|`, "<", "&lt;", `\`, `\\`, "[", `\[`, "]", `\]`, "`", "\\`", "*", `\*`)
