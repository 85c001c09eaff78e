// Package testdata holds real rollouts for tests, demonstrations and
// benchmarks that should need no download. README.md tells where they come from.
package testdata

import _ "embed"

// FrozenLakeSmall is a safetensors file: a packed batch of 32 rollouts in 4
// groups, 6,272 tokens, of a trained policy on slippery FrozenLake. It has
// every array of the packed layout except the logits.
//
//go:embed frozenlake-small.safetensors
var FrozenLakeSmall []byte
