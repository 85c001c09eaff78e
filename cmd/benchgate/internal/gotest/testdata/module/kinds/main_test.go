package kinds

import (
	"fmt"
	"log"
	"os"
	"testing"
)

// What the linker's flag -X sets.
var linked = "nothing"

var logger = log.New(os.Stdout, "", 0)

// C code has this, and does not use os.Stdout.
var stdout = os.NewFile(1, "stdout")

func init() {
	fmt.Println("an init function prints")
	stdout.WriteString("as C code does\n")
}

func TestMain(m *testing.M) {
	fmt.Println("set up")
	defer func() {
		if _, err := os.ReadFile("testdata/words.txt"); err == nil {
			fmt.Println("torn down")
		}
	}()
	m.Run()
}

func TestOther(t *testing.T) { t.Fatal("nobody wants this test") }
