// Package must is for the steps of a test that prepare what it is about: an error there ends the test program with
// the error and the place. What a test is about is checked by the test itself.
package must

// Get returns x, and panics if there is an error.
func Get[T any](x T, err error) T {
	Do(err)
	return x
}

// Do panics if there is an error.
func Do(err error) {
	if err != nil {
		panic(err)
	}
}
