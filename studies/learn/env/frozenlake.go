package env

import "math/rand/v2"

// A frozenLake is an episode of the game of that name of Gym: the agent crosses a
// frozen lake from the start S over the ice F to the goal G, and fails when it
// falls into a hole H or when its turns are over. The ice is slippery: a move can
// take the agent in one of the two directions perpendicular to it. A move off the
// lake leaves the agent where it is.
//
// The map is Gym's. In Gym the intended direction and the two others have a third
// each, and an episode has 100 turns. Here the intended direction has 0.8 and the
// others 0.1 each, so that 24 turns are enough: the cost of training is that of
// its tokens.
//
// The agent reads "lake", its row and its column, and answers one of up, right,
// down and left. The reasoning is "to" and the cell that the move leads to if the
// agent does not slip.
type frozenLake struct {
	cell  int
	turns int // left
	luck  rand.PCG
}

const lakeMap = "SFFF" +
	"FHFH" +
	"FFFH" +
	"HFFG"

const (
	lakeTurns = 24
	lakeSlip  = 0.1 // probability of each of the two perpendicular directions
)

// lakeTo returns the cell that a move leads to without slipping.
func lakeTo(cell, move int) int {
	if next, ok := neighbor(cell, move); ok {
		return next
	}
	return cell
}

// lakeBest has the moves of a perfect player by turns left and cell, the first ones of
// equals.
var lakeBest = func() (best [lakeTurns + 1][gridCells]int) {
	ends := [gridCells]float64{gridCells - 1: 1} // probability of success where the episode ends
	later := ends                                // and everywhere, with one turn less
	for turns := 1; turns <= lakeTurns; turns++ {
		success := ends
		for cell, kind := range lakeMap {
			if kind == 'H' || kind == 'G' {
				continue
			}
			for move := range 4 {
				aside := later[lakeTo(cell, (move+1)%4)] + later[lakeTo(cell, (move+3)%4)]
				p := float64((1-2*lakeSlip)*later[lakeTo(cell, move)]) + float64(lakeSlip*aside)
				if p > success[cell] {
					success[cell], best[turns][cell] = p, move
				}
			}
		}
		later = success
	}
	return best
}()

// Reset begins an episode. All begin in the same cell, whatever start is.
func (f *frozenLake) Reset(_, luck uint64) {
	f.cell, f.turns = 0, lakeTurns
	f.luck.Seed(luck, 0)
}

func (f *frozenLake) Observe() []int32 { return append([]int32{Token("lake")}, place(f.cell, zero)...) }

func (f *frozenLake) Answers() [][]int32 { return moves }

func (f *frozenLake) Act(move int) (done, success bool) {
	f.turns--
	if move >= 0 {
		switch u := float64(f.luck.Uint64()>>11) / (1 << 53); {
		case u < lakeSlip:
			move = (move + 1) % 4
		case u < 2*lakeSlip:
			move = (move + 3) % 4
		}
		f.cell = lakeTo(f.cell, move)
	}
	kind := lakeMap[f.cell]
	return kind == 'H' || kind == 'G' || f.turns == 0, kind == 'G'
}

func (f *frozenLake) Best() int { return lakeBest[f.turns][f.cell] }

func (f *frozenLake) Reason(move int) []int32 {
	return append([]int32{Token("to")}, place(lakeTo(f.cell, move), zero)...)
}
