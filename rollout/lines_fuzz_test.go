package rollout

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// readFrom reads the trajectories of a file called f, and the error after them.
func readFrom(r reader) (all []*Trajectory, err error) {
	c := newCompleter(Options{}, false, nil)
	in := &input{name: "f", stream: new(stream), reader: r}
	for {
		tr, err := c.next(in)
		if err != nil {
			return all, err
		}
		all = append(all, tr)
	}
}

// readText is readFrom for a text in a format of JSON objects.
func readText(text string, parse parser) ([]*Trajectory, error) {
	return readFrom(newLines(strings.NewReader(text), "f", parse))
}

// checkText reads a text of any contents: no panic, an error of one short line that
// begins with the file, memory of the order of the text, and trajectories that are valid
// and survive being written.
func checkText(t *testing.T, text string, parse parser) {
	t.Helper()
	var all []*Trajectory
	var err error
	// The buffers, and for each byte or two a number or an object of some 100 bytes.
	limit := uint64(128*len(text) + 4*chunkSize)
	if n := allocated(func() { all, err = readText(text, parse) }); n > limit {
		t.Errorf("%d bytes of text made %d bytes of allocations", len(text), n)
	}
	if err != io.EOF {
		if s := err.Error(); !strings.HasPrefix(s, "f:") ||
			strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) || len(s) > 500 {
			t.Errorf("%q: error is not one short line that names the file: %q", text, s)
		}
	}
	for _, tr := range all {
		if tr.Tokens() > 0 {
			must.Do(tr.Validate())
		}
		once := lineOf(t, tr)
		again, err := readText(once, parseJSONL)
		if err != io.EOF || len(again) != 1 {
			t.Fatalf("%q is written as %s, which is read as %d trajectories, %v", text, once, len(again), err)
		}
		if twice := lineOf(t, again[0]); twice != once {
			t.Errorf("%q is written as\n%s, and that as\n%s", text, once, twice)
		}
	}
}

// lineOf returns what WriteJSONL writes.
func lineOf(t *testing.T, tr *Trajectory) string {
	t.Helper()
	var line bytes.Buffer
	must.Do(WriteJSONL(&line, tr))
	return line.String()
}

// someObject makes a JSON object of some of the fields out of any bytes, so that the fuzzer
// need not find the names.
func someObject(choices []byte, names []string) string {
	numbers := strings.Fields("0 1 2 -1 -0.5 1.5 -1e-5 -9999 NaN 1e39 -1.2345678901234567 -Infinity 2147483648 null true \"x\"")
	choose := func(n int) int {
		if len(choices) == 0 {
			return 0
		}
		c := choices[0]
		choices = choices[1:]
		return int(c) % n
	}
	var fields []string
	for len(choices) > 0 {
		name := names[choose(len(names))]
		list := make([]string, choose(6))
		first := choose(len(numbers))
		for i := range list {
			list[i] = numbers[first]
			if choose(4) == 3 {
				first = choose(len(numbers))
			}
		}
		value := "[" + strings.Join(list, ", ") + "]"
		switch choose(8) {
		case 4, 5:
			value = "[" + value + "]"
		case 6:
			value = numbers[first]
		case 7:
			value = `{"a": [` + value + `]}`
		}
		fields = append(fields, fmt.Sprintf("%q: %s", name, value))
	}
	return "{" + strings.Join(fields, ", ") + "}"
}

// fuzzText checks texts, both any and ones made of the names of fields. The first byte of
// the input says which.
func fuzzText(f *testing.F, parse parser, names []string, seeds ...string) {
	for _, seed := range seeds {
		f.Add([]byte("\x00" + seed))
	}
	for i := range 4 {
		choices := []byte{1}
		for j := range 60 {
			choices = append(choices, byte(7*i+j*j))
		}
		f.Add(choices)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		text := string(data[1:])
		if data[0]%2 == 1 {
			half := (len(data) + 1) / 2
			text = someObject(data[1:half], names) + "\n" + someObject(data[half:], names)
		}
		checkText(t, text, parse)
	})
}

var addedNames = []string{"reward", "rewards", "group_id", "trajectory_id", "other"}

func FuzzJSONL(f *testing.F) {
	names := append([]string{"mask", "texts"}, addedNames...)
	for _, a := range new(reweight.Batch).Arrays() {
		names = append(names, a.Name)
	}
	fuzzText(f, parseJSONL, names,
		`{"role": [0, 1, 2, 1], "span_ids": [-1, 0, 0, 0], "reward": 0.5, "group_id": "a", "logprobs": [NaN, -1.5, -0.25, "-Infinity"]}`,
		"[{\"mask\": [0, 1], \"texts\": [\"a\\u00e9\", \"\\n\"]},\n{\"mask\": [true, false], \"texts\": [\"\", \"x\"]}]",
		"{\"role\": [], \"trajectory_id\": 1}\n{\"role\": [1], \"trajectory_id\": 1, \"seq_offsets\": [0, 1]}",
	)
}

func FuzzNeMoRL(f *testing.F) {
	fuzzText(f, parseNeMoRL, append([]string{
		"input_lengths", "token_ids", "token_loss_mask", "sample_loss_mask", "advantages", "generation_logprobs", "prev_logprobs", "filtered_rewards", "content", "idx",
	}, addedNames...),
		`{"content": ["a"], "rewards": [0.5], "input_lengths": [2], "token_ids": [[7, 8, 0]], "token_loss_mask": [[0, 1, 0]], "sample_loss_mask": [1.0], `+
			`"advantages": [[0.0, 1.5, 0.0]], "generation_logprobs": [[0.0, -0.5, 0.0]], "prev_logprobs": [[0.0, -0.25, 0.0]], "idx": 0}`,
		`{"input_lengths": [2], "token_ids": [[7, 8]], "token_loss_mask": [[0, 1]], "sample_loss_mask": [0], "filtered_rewards": [1], "rewards": [], "prev_logprobs": [[0, 0]], "generation_logprobs": [[0, -1]]}`,
	)
}

func FuzzPrimeRL(f *testing.F) {
	fuzzText(f, parsePrimeRL, append([]string{
		"token_ids", "loss_mask", "advantages", "inference_logprobs", "trainer_logprobs", "entropy", "rl_weights", "env_name", "position_ids",
	}, addedNames...),
		`{"step":1,"env_name":"e","token_ids":[7,8,9],"position_ids":[0,1,2],"loss_mask":[false,true,true],"advantages":[0.0,1.5,1.5],"inference_logprobs":[0.0,-0.25,-0.5],`+
			`"trainer_logprobs":[null,-0.25,-0.5],"entropy":[null,0.5,0.25],"importance_ratio":[null,null,null],"rl_weights":[null,1.0,0.0]}`,
	)
}
