//go:build !js && !plan9

package main

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/seed621a2839/reweight/internal/testprogram"
)

// TestDirectoryKilled: a run that is killed at any moment leaves nothing that is half
// written, and the next one does what is left: the bytes are those of a run that was not
// killed, and what was there is not written again.
func TestDirectoryKilled(t *testing.T) {
	if runtime.GOOS == "windows" || testing.Short() {
		t.Skip("kills processes")
	}
	shards := lakeShards(t, 8)
	args := func(dir string) []string { return append([]string{"-o", dir}, shards...) }
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole")
	start := time.Now()
	if text, err := testprogram.Command(t, args(whole)...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	took := time.Since(start)
	want := contents(t, whole, "")
	if len(want) != 2*len(shards) && (runtime.GOOS == "linux" || runtime.GOOS == "darwin") {
		t.Fatalf("%d files, want %d", len(want), 2*len(shards))
	}
	const kills = 3
	partly := 0
	for i := range kills {
		out := filepath.Join(dir, "killed", string(rune('a'+i)))
		c := testprogram.Command(t, args(out)...)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(took * time.Duration(i+1) / (kills + 1))
		c.Process.Kill()
		c.Wait()
		if _, err := os.Stat(out); err != nil {
			continue // it had not begun
		}
		left := contents(t, out, "")
		times := map[string]time.Time{}
		for name, data := range left {
			if strings.HasPrefix(name, ".reweight") {
				continue
			}
			if data != want[name] {
				t.Errorf("killed after %d of %d: %s is half written or wrong", i+1, kills+1, name)
			}
			times[name] = modified(t, filepath.Join(out, name))
		}
		if n := len(times); n > 0 && n < len(want) {
			partly++
		}
		text := runScore(t, args(out)...)
		if got := contents(t, out, ""); !maps.Equal(got, want) {
			t.Errorf("killed after %d of %d: there are %d files, want the same %d\n%s", i+1, kills+1, len(got), len(want), text)
		}
		for name, then := range times {
			if now := modified(t, filepath.Join(out, name)); !now.Equal(then) {
				t.Errorf("killed after %d of %d: %s is written again", i+1, kills+1, name)
			}
		}
	}
	t.Logf("a run takes %v; %d of %d were killed with some of the files written", took, partly, kills)
}

func modified(t *testing.T, name string) time.Time {
	t.Helper()
	var info fs.FileInfo
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.ModTime()
}
