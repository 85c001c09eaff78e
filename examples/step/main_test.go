package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestStep: the program prints output.txt, as step.py does, which Python's tests run.
func TestStep(t *testing.T) {
	want, err := os.ReadFile("output.txt")
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := step(&got, "responses.jsonl"); err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%v, it prints\n%swant\n%s", err, &got, want)
	}
	// A file that lacks something is an error that names it.
	path := t.TempDir() + "/short.jsonl"
	line := `{"group_id": "a", "reward": 1, "texts": ["<answer>", "x", "</answer>"], "mask": [1, 1, 1], "old_logprobs": [0, -1, 0]}` + "\n"
	if err := os.WriteFile(path, []byte(line), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := step(&got, path); err == nil || !strings.Contains(err.Error(), "needs entropy and ref_energy") {
		t.Errorf("without entropy and energy: %v", err)
	}
}
