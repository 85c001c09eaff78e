package rollout

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/seed621a2839/reweight/internal/atomicfile"
	"github.com/seed621a2839/reweight/internal/printable"
)

// A Vocabulary has the texts of tokens by their ids.
type Vocabulary map[int32]string

// maxVocabulary bounds the files that ReadVocabulary reads, in bytes. Those of large models
// have a tenth of it.
const maxVocabulary = 256 << 20

// ReadVocabulary reads a JSON file: a list of texts, the first of which is token 0, or a
// tokenizer.json or vocab.json of Hugging Face. Errors name the file.
func ReadVocabulary(path string) (Vocabulary, error) {
	data, err := atomicfile.Read(path, maxVocabulary)
	if err != nil {
		return nil, err
	}
	v, err := parseVocabulary(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", printable.Text(path), err)
	}
	return v, nil
}

func parseVocabulary(data []byte) (Vocabulary, error) {
	v := Vocabulary{}
	if text := bytes.TrimSpace(data); len(text) > 0 && text[0] == '[' {
		var list []string
		if err := json.Unmarshal(data, &list); err != nil {
			return nil, err
		}
		for id, word := range list {
			v[int32(id)] = word
		}
		return v, nil
	}
	var tokenizer struct {
		Model struct {
			Vocab map[string]int32 `json:"vocab"`
		} `json:"model"`
		Added []struct {
			ID      int32  `json:"id"`
			Content string `json:"content"`
		} `json:"added_tokens"`
		PreTokenizer json.RawMessage `json:"pre_tokenizer"`
		Decoder      json.RawMessage `json:"decoder"`
	}
	if err := json.Unmarshal(data, &tokenizer); err != nil {
		return nil, err
	}
	decode := decodePieces
	if name := []byte(`"ByteLevel"`); bytes.Contains(tokenizer.Decoder, name) ||
		bytes.Contains(tokenizer.PreTokenizer, name) {
		decode = decodeBytes
	}
	if len(tokenizer.Model.Vocab) == 0 { // a vocab.json: the ids alone, by their tokens
		words := &tokenizer.Model.Vocab
		if err := json.Unmarshal(data, words); err != nil || len(*words) == 0 {
			return nil, errors.New("is neither a JSON list of texts nor a tokenizer.json with model.vocab, nor a vocab.json")
		}
		for word := range *words {
			if strings.ContainsRune(word, 'Ġ') { // a space in a byte-level vocabulary
				decode = decodeBytes
			}
		}
	}
	for word, id := range tokenizer.Model.Vocab {
		v[id] = decode(word)
	}
	for _, a := range tokenizer.Added { // as they stand
		v[a.ID] = a.Content
	}
	return v, nil
}

// byteOf maps the characters that byte-level vocabularies write for bytes to those. A byte
// that is a printable character of Latin-1 stands for itself; the others are written
// as the characters from U+0100 on, in their order.
var byteOf = func() map[rune]byte {
	m := map[rune]byte{}
	next := rune(0x100)
	for b := range rune(256) {
		if b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae {
			m[b] = byte(b)
		} else {
			m[next] = byte(b)
			next++
		}
	}
	return m
}()

// decodeBytes returns the bytes that a token of a byte-level vocabulary stands for. A
// text that is none of such a vocabulary stays as it is.
func decodeBytes(word string) string {
	var text []byte
	for _, r := range word {
		b, ok := byteOf[r]
		if !ok {
			return word
		}
		text = append(text, b)
	}
	return string(text)
}

var bytePiece = regexp.MustCompile(`^<0x([0-9A-F]{2})>$`)

// decodePieces returns the text of a token of a vocabulary of SentencePiece, which writes
// U+2581 for a space, and <0x0A> for a byte.
func decodePieces(word string) string {
	if m := bytePiece.FindStringSubmatch(word); m != nil {
		b, _ := strconv.ParseUint(m[1], 16, 8)
		return string([]byte{byte(b)})
	}
	return strings.ReplaceAll(word, "\u2581", " ")
}

// Texts returns the texts of the tokens, or nil if v lacks one of them.
func (v Vocabulary) Texts(ids []int32) []string {
	var all []string
	for _, id := range ids {
		text, ok := v[id]
		if !ok {
			return nil
		}
		all = append(all, text)
	}
	return all
}

// known returns the texts of the tokens, and an empty one for a token that v lacks.
func (v Vocabulary) known(ids []int32) []string {
	all := make([]string, len(ids))
	for i, id := range ids {
		all[i] = v[id]
	}
	return all
}

// ListedVocabulary returns the vocabulary that metadata of safetensors files has, or nil if
// the text is none.
func ListedVocabulary(text string) Vocabulary {
	v, _ := parseVocabulary([]byte(text))
	return v
}
