// Package old is of a module that keeps to an old version of the language.
package old

// Revision differs between two revisions.
const Revision = 2
