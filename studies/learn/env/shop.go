package env

import (
	"math/rand/v2"
	"slices"
)

// A shop after WebShop (arXiv 2207.01206): find the item with given attributes by
// search and click, and buy it, in at most six turns. An item has a type, a
// colour and a size. There is a page of four items for each type. The right item
// is on the page of its type, and all other items are near misses: they have the
// wanted colour or the wanted size, never both.
//
//	place     answers that are possible there
//	start     search TYPE
//	results   search TYPE, click COLOUR SIZE (of an item on the page)
//	item      buy, back (to the results)
//
// Buying ends the episode. Any other answer is a lost turn. An item is clicked by
// what it says, as WebShop's options are, and not by its place on the page, which
// a small recurrent policy does not learn to find.
var shop = Game{
	Name:    "shop",
	Title:   "Shop",
	New:     newShop,
	Perfect: func() float64 { return 1 },
}

const (
	shopTypes   = 4
	shopColours = 6
	shopSizes   = 4
	shopPage    = 4 // items on a page
	shopTurns   = 6
)

// Numbers of the answers. Those possible in one place stand together.
const (
	shopBuy    = 0
	shopBack   = 1
	shopSearch = 2                      // and a type
	shopClick  = shopSearch + shopTypes // and an entry of the page
	shopEnd    = shopClick + shopPage
)

// shopAnswers holds the answers below shopClick.
var shopAnswers = [shopClick][]int32{
	{Token("buy")}, {Token("back")},
	{Token("search"), Token("shirt")}, {Token("search"), Token("shoes")},
	{Token("search"), Token("lamp")}, {Token("search"), Token("mug")},
}

// shopClicks holds the clicks, by colour and size.
var shopClicks = func() (clicks [shopColours][shopSizes][3]int32) {
	for colour := range clicks {
		for size := range clicks[colour] {
			shopLook{colour, size}.words(append(clicks[colour][size][:0], Token("click")))
		}
	}
	return clicks
}()

// Words of the observation and the reasoning. The types, the colours and the
// sizes each stand together in Words.
var (
	shopWant, shopHere, shopNot        = Token("want"), Token("here"), Token("not")
	shopAtStart, shopResults, shopItem = Token("start"), Token("results"), Token("item")
	shopShirt, shopRed, shopSmall      = Token("shirt"), Token("red"), Token("small")
)

// A shopLook is an item without its type, which is that of its page.
type shopLook struct{ colour, size int }

func (l shopLook) words(dst []int32) []int32 {
	return append(dst, shopRed+int32(l.colour), shopSmall+int32(l.size))
}

type shopGame struct {
	source rand.PCG
	random *rand.Rand // draws from source

	kind   int // the wanted type
	want   shopLook
	pages  [shopTypes][shopPage]shopLook
	page   int // the type searched for, or -1
	item   int // the one looked at, or -1
	turns  int // left
	reason [4]int32
}

func newShop() Environment {
	s := new(shopGame)
	s.random = rand.New(&s.source)
	return s
}

// Reset draws what is wanted and what the shop has. No chance follows, so that
// luck is not used.
func (s *shopGame) Reset(start, luck uint64) {
	s.source.Seed(start, 0)
	s.kind = s.random.IntN(shopTypes)
	s.want = shopLook{s.random.IntN(shopColours), s.random.IntN(shopSizes)}
	for i := range s.pages {
		colour1, colour2 := s.others(s.want.colour, shopColours)
		size1, size2 := s.others(s.want.size, shopSizes)
		page := &s.pages[i]
		*page = [shopPage]shopLook{
			{s.want.colour, size1}, {s.want.colour, size2},
			{colour1, s.want.size}, {colour2, s.want.size},
		}
		s.random.Shuffle(len(page), func(i, j int) { page[i], page[j] = page[j], page[i] })
	}
	s.pages[s.kind][s.random.IntN(shopPage)] = s.want
	s.page, s.item = -1, -1
	s.turns = shopTurns
}

// others draws two different numbers below n, neither of which is wanted.
func (s *shopGame) others(wanted, n int) (a, b int) {
	i := s.random.IntN(n - 1)
	j := (i + 1 + s.random.IntN(n-2)) % (n - 1)
	return (wanted + 1 + i) % n, (wanted + 1 + j) % n
}

// possible returns the range of answers that the present place allows.
func (s *shopGame) possible() (from, to int) {
	switch {
	case s.page < 0:
		return shopSearch, shopClick
	case s.item < 0:
		return shopSearch, shopEnd
	default:
		return shopBuy, shopSearch
	}
}

// answer returns the words of answer i, which must be possible at present.
func (s *shopGame) answer(i int) []int32 {
	if i < shopClick {
		return shopAnswers[i]
	}
	look := s.pages[s.page][i-shopClick]
	return shopClicks[look.colour][look.size][:]
}

// parse returns the number of an answer, or -1 if it is not possible at present.
func (s *shopGame) parse(answer []int32) int {
	from, to := s.possible()
	for i := from; i < to; i++ {
		if slices.Equal(s.answer(i), answer) {
			return i
		}
	}
	return -1
}

// right says whether the item looked at is the wanted one.
func (s *shopGame) right() bool {
	return s.page == s.kind && s.pages[s.page][s.item] == s.want
}

// Observe writes the place, which is "start", or "results" and the colour and size
// of four items, or "item" and its type, colour and size; then "want" and the type,
// colour and size of what is wanted. That is all a perfect player needs to know.
// What is wanted comes last, near to the answer that has to repeat it.
func (s *shopGame) Observe(dst []int32) []int32 {
	switch {
	case s.page < 0:
		dst = append(dst, shopAtStart)
	case s.item < 0:
		dst = append(dst, shopResults)
		for _, look := range s.pages[s.page] {
			dst = look.words(dst)
		}
	default:
		dst = s.pages[s.page][s.item].words(append(dst, shopItem, shopShirt+int32(s.page)))
	}
	return s.want.words(append(dst, shopWant, shopShirt+int32(s.kind)))
}

// Act carries out an answer.
func (s *shopGame) Act(answer []int32) (done, success bool) {
	s.turns--
	switch i := s.parse(answer); {
	case i < 0: // a lost turn
	case i == shopBuy:
		return true, s.right()
	case i == shopBack:
		s.item = -1
	case i < shopClick:
		s.page = i - shopSearch
	default:
		s.item = i - shopClick
	}
	return s.turns == 0, false
}

// Best searches for the type, clicks the right item and buys it, and goes back
// from any other.
func (s *shopGame) Best() []int32 {
	switch {
	case s.item >= 0 && s.right():
		return s.answer(shopBuy)
	case s.item >= 0:
		return s.answer(shopBack)
	case s.page != s.kind:
		return s.answer(shopSearch + s.kind)
	default:
		return s.answer(shopClick + slices.Index(s.pages[s.page][:], s.want))
	}
}

// Random returns any answer that is possible at present.
func (s *shopGame) Random(random *rand.Rand) []int32 {
	from, to := s.possible()
	return s.answer(from + random.IntN(to-from))
}

// Reason returns these words, which the next call overwrites, and nothing for an
// answer that is not possible at present:
//
//	search TYPE          want TYPE           that type is wanted
//	click COLOUR SIZE    here COLOUR         the wanted item is on the page, in that colour
//	buy                  COLOUR SIZE here    what the item looks like; it is the wanted one
//	back                 COLOUR SIZE not     what the item looks like; it is not the wanted one
//
// The reason for a click leaves the size open: with both, it would be the answer.
func (s *shopGame) Reason(answer []int32) []int32 {
	dst := s.reason[:0]
	switch i := s.parse(answer); {
	case i < 0:
		return nil
	case i == shopBuy:
		return append(s.pages[s.page][s.item].words(dst), shopHere)
	case i == shopBack:
		return append(s.pages[s.page][s.item].words(dst), shopNot)
	case i < shopClick:
		return append(dst, shopWant, shopShirt+int32(i-shopSearch))
	default:
		return append(dst, shopHere, shopRed+int32(s.pages[s.page][i-shopClick].colour))
	}
}
