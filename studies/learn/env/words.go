package env

import "fmt"

// Words is the vocabulary: the token i is the word Words[i]. New words go before those
// that mean nothing, which must stay the last.
var Words = []string{
	// The dialogue. What the agent writes begins after Begin and ends with AnswerEnd.
	"<agent>", "<answer>", "</answer>",
	// Numbers: rows, columns, digits, entries of a list.
	"0", "1", "2", "3", "4", "5", "6",
	// FrozenLake and Sokoban.
	"up", "down", "left", "right", "lake", "you", "crate", "goal", "to", "walk", "push", "here",
	// Sudoku.
	"row", "column", "box", "not",
	// The shop.
	"want", "start", "results", "item", "search", "click", "buy", "back",
	"shirt", "shoes", "lamp", "mug",
	"red", "green", "blue", "white", "black", "yellow",
	"small", "medium", "large", "huge",
	// Words that mean nothing, for reasoning that is noise.
	"well", "so", "hmm", "let", "me", "see", "maybe", "then", "first", "now", "think", "about",
	"this", "that", "could", "should", "try", "again", "look", "at", "it", "one", "more", "time",
	"perhaps", "okay", "right?", "sure", "next", "step", "by", "and", "or", "but", "if", "is",
}

// Fillers is the number of words at the end of Words that mean nothing.
const Fillers = 36

var tokens = func() map[string]int32 {
	m := make(map[string]int32, len(Words))
	for i, word := range Words {
		m[word] = int32(i)
	}
	return m
}()

// Token returns the number of a word, which must be one of Words.
func Token(word string) int32 {
	token, ok := tokens[word]
	if !ok {
		panic(fmt.Sprintf("env: %q is not in the vocabulary", word))
	}
	return token
}

// Tokens of the dialogue.
var (
	Begin       = Token("<agent>") // ends each observation; the agent's words follow
	AnswerStart = Token("<answer>")
	AnswerEnd   = Token("</answer>") // ends the turn
)
