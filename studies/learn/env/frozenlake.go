package env

import "math/rand/v2"

// FrozenLake is the game of that name of Gym: the agent crosses a frozen lake
// from the start S over the ice F to the goal G, and fails when it falls into a
// hole H or when its turns are over. The ice is slippery: a move can take the
// agent in one of the two directions perpendicular to it. A move off the lake
// leaves the agent where it is.
//
// The map is Gym's. In Gym the intended direction and the two others have a third each, and an
// episode has 100 turns. Here the intended direction has 0.8 and the others 0.1
// each, so that 24 turns are enough: the cost of training is that of its tokens.
//
// The agent reads "lake", its row and its column, and answers one of up, right,
// down and left. The reasoning is "to" and the cell that the move leads to if the
// agent does not slip.
var frozenLake4 = newLake(4, "SFFF"+
	"FHFH"+
	"FFFH"+
	"HFFG").game("frozenlake4", "FrozenLake 4x4")

const (
	lakeTurns = 24
	lakeSlip  = 0.1 // probability of each of the two perpendicular directions
)

// A lake is a map and what is computed from it. The episodes on it share it.
type lake struct {
	size        int
	cells       string               // row by row
	best        [lakeTurns + 1][]int // [turns left][cell], a move
	wins        float64              // probability that a perfect player succeeds
	observation [][]int32            // [cell], what the agent reads there
	reason      [][]int32            // [cell], the reasoning that leads there
}

func newLake(size int, cells string) *lake {
	l := &lake{size: size, cells: cells}
	for cell := range cells {
		row, column := zero+int32(cell/size), zero+int32(cell%size)
		l.observation = append(l.observation, []int32{Token("lake"), row, column})
		l.reason = append(l.reason, []int32{Token("to"), row, column})
	}
	success := l.zeroTurns()
	for turns := 1; turns <= lakeTurns; turns++ {
		success, l.best[turns] = l.oneMoreTurn(success, lakeSlip)
	}
	l.wins = success[0]
	return l
}

func (l *lake) game(name, title string) Game {
	return Game{
		Name:    name,
		Title:   title,
		New:     func() Environment { return &frozenLake{lake: l} },
		Perfect: func() float64 { return l.wins },
	}
}

// to returns the cell that a move leads to without slipping.
func (l *lake) to(cell, move int) int {
	row, column := cell/l.size+moveRow[move], cell%l.size+moveColumn[move]
	if row < 0 || row >= l.size || column < 0 || column >= l.size {
		return cell
	}
	return row*l.size + column
}

// zeroTurns returns the probability of success from each cell with no turns left.
func (l *lake) zeroTurns() []float64 {
	success := make([]float64, len(l.cells))
	for cell, kind := range l.cells {
		if kind == 'G' {
			success[cell] = 1
		}
	}
	return success
}

// oneMoreTurn returns, for each cell, the probability of success of a perfect
// player who has one turn more than a player for whom it is later, and the best
// move, the first one of equals.
func (l *lake) oneMoreTurn(later []float64, slip float64) (success []float64, best []int) {
	success, best = l.zeroTurns(), make([]int, len(l.cells))
	for cell, kind := range l.cells {
		if kind == 'H' || kind == 'G' {
			continue
		}
		for move := range 4 {
			straight := later[l.to(cell, move)]
			aside := later[l.to(cell, (move+1)%4)] + later[l.to(cell, (move+3)%4)]
			p := float64((1-float64(2*slip))*straight) + float64(slip*aside)
			if p > success[cell] {
				success[cell], best[cell] = p, move
			}
		}
	}
	return success, best
}

// A frozenLake is one episode.
type frozenLake struct {
	*lake
	cell  int
	turns int // left
	luck  rand.PCG
}

// Reset begins an episode. All begin in the same cell, whatever start is.
func (f *frozenLake) Reset(start, luck uint64) {
	f.cell, f.turns = 0, lakeTurns
	f.luck.Seed(luck, 0)
}

func (f *frozenLake) Observe(dst []int32) []int32 { return append(dst, f.observation[f.cell]...) }

func (f *frozenLake) Act(answer []int32) (done, success bool) {
	f.turns--
	if move := answerMove(answer); move >= 0 {
		switch u := float64(f.luck.Uint64()>>11) / (1 << 53); {
		case u < lakeSlip:
			move = (move + 1) % 4
		case u < 2*lakeSlip:
			move = (move + 3) % 4
		}
		f.cell = f.to(f.cell, move)
	}
	kind := f.cells[f.cell]
	return kind == 'H' || kind == 'G' || f.turns == 0, kind == 'G'
}

func (f *frozenLake) Best() []int32 { return moveAnswer(f.best[f.turns][f.cell]) }

func (f *frozenLake) Random(random *rand.Rand) []int32 { return randomMove(random) }

func (f *frozenLake) Reason(answer []int32) []int32 {
	move := answerMove(answer)
	if move < 0 {
		return nil
	}
	return f.reason[f.to(f.cell, move)]
}
