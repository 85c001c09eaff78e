package env

import (
	"math/rand/v2"
	"slices"
)

// A shop is an episode after WebShop (arXiv 2207.01206): find the item with given
// attributes by search and click, and buy it, in at most six turns. An item has a
// type, a colour and a size. There is a page of four items for each type. The right
// item is on the page of its type, and all other items are near misses: they have
// the wanted colour or the wanted size, never both.
//
//	place     answers that are possible there
//	start     search TYPE
//	results   search TYPE, click COLOUR SIZE (of an item on the page)
//	item      buy, back (to the results)
//
// Buying ends the episode. Any other answer is a lost turn. An item is clicked by
// what it says, as WebShop's options are, and not by its place on the page, which
// a small recurrent policy does not learn to find.
type shop struct {
	kind  int // the wanted type
	want  shopLook
	pages [shopTypes][shopPage]shopLook
	page  int // the type searched for, or -1
	item  int // the one looked at, or -1
	turns int // left
}

const (
	shopTypes   = 4
	shopColours = 6
	shopSizes   = 4
	shopPage    = 4 // items on a page
	shopTurns   = 6
)

// A shopLook is an item without its type, which is that of its page.
type shopLook struct{ colour, size int }

// The types, the colours and the sizes each stand together in Words.
func (l shopLook) words() []int32 {
	return []int32{Token("red") + int32(l.colour), Token("small") + int32(l.size)}
}

func shopType(kind int) int32 { return Token("shirt") + int32(kind) }

// Reset draws what is wanted and what the shop has. No chance follows, so that
// luck is not used.
func (s *shop) Reset(start, _ uint64) {
	random := rand.New(rand.NewPCG(start, 0))
	// Two different numbers below n, neither of which is wanted.
	others := func(wanted, n int) (a, b int) {
		i := random.IntN(n - 1)
		j := (i + 1 + random.IntN(n-2)) % (n - 1)
		return (wanted + 1 + i) % n, (wanted + 1 + j) % n
	}
	s.kind = random.IntN(shopTypes)
	s.want = shopLook{random.IntN(shopColours), random.IntN(shopSizes)}
	for i := range s.pages {
		colour1, colour2 := others(s.want.colour, shopColours)
		size1, size2 := others(s.want.size, shopSizes)
		page := &s.pages[i]
		*page = [shopPage]shopLook{
			{s.want.colour, size1}, {s.want.colour, size2},
			{colour1, s.want.size}, {colour2, s.want.size},
		}
		random.Shuffle(len(page), func(i, j int) { page[i], page[j] = page[j], page[i] })
	}
	s.pages[s.kind][random.IntN(shopPage)] = s.want
	s.page, s.item = -1, -1
	s.turns = shopTurns
}

// right says whether the item looked at is the wanted one.
func (s *shop) right() bool { return s.page == s.kind && s.pages[s.page][s.item] == s.want }

// Observe returns the place, which is "start", or "results" and the colour and size
// of four items, or "item" and its type, colour and size; then "want" and the type,
// colour and size of what is wanted. That is all a perfect player needs to know.
// What is wanted comes last, near to the answer that has to repeat it.
func (s *shop) Observe() (words []int32) {
	switch {
	case s.page < 0:
		words = []int32{Token("start")}
	case s.item < 0:
		words = []int32{Token("results")}
		for _, look := range s.pages[s.page] {
			words = append(words, look.words()...)
		}
	default:
		words = append([]int32{Token("item"), shopType(s.page)}, s.pages[s.page][s.item].words()...)
	}
	return append(append(words, Token("want"), shopType(s.kind)), s.want.words()...)
}

// Answers returns buy and back at an item, and elsewhere a search for each type and then
// a click for each item of the page, if there is one.
func (s *shop) Answers() (answers [][]int32) {
	if s.item >= 0 {
		return [][]int32{{Token("buy")}, {Token("back")}}
	}
	for kind := range shopTypes {
		answers = append(answers, []int32{Token("search"), shopType(kind)})
	}
	if s.page >= 0 {
		for _, look := range s.pages[s.page] {
			answers = append(answers, append([]int32{Token("click")}, look.words()...))
		}
	}
	return answers
}

func (s *shop) Act(answer int) (done, success bool) {
	s.turns--
	switch {
	case answer < 0: // a lost turn
	case s.item >= 0 && answer == 0:
		return true, s.right()
	case s.item >= 0:
		s.item = -1
	case answer < shopTypes:
		s.page = answer
	default:
		s.item = answer - shopTypes
	}
	return s.turns == 0, false
}

// Best searches for the type, clicks the right item and buys it, and goes back
// from any other.
func (s *shop) Best() int {
	switch {
	case s.item >= 0 && s.right():
		return 0
	case s.item >= 0:
		return 1
	case s.page != s.kind:
		return s.kind
	default:
		return shopTypes + slices.Index(s.pages[s.page][:], s.want)
	}
}

// Reason returns these words:
//
//	search TYPE          want TYPE           that type is wanted
//	click COLOUR SIZE    here COLOUR         the wanted item is on the page, in that colour
//	buy                  COLOUR SIZE here    what the item looks like; it is the wanted one
//	back                 COLOUR SIZE not     what the item looks like; it is not the wanted one
//
// The reason for a click leaves the size open: with both, it would be the answer.
func (s *shop) Reason(answer int) []int32 {
	switch {
	case s.item >= 0:
		return append(s.pages[s.page][s.item].words(), []int32{Token("here"), Token("not")}[answer])
	case answer < shopTypes:
		return []int32{Token("want"), shopType(answer)}
	default:
		return []int32{Token("here"), s.pages[s.page][answer-shopTypes].words()[0]}
	}
}
