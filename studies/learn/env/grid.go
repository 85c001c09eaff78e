package env

// FrozenLake and Sokoban are played on 4x4 cells, counted row by row, by four
// moves. The order of the moves goes clockwise, so that the two neighbours of a
// move are perpendicular to it.
const (
	gridSide  = 4
	gridCells = gridSide * gridSide
)

var (
	moves      = [][]int32{{Token("up")}, {Token("right")}, {Token("down")}, {Token("left")}}
	moveRow    = [4]int{-1, 0, 1, 0}
	moveColumn = [4]int{0, 1, 0, -1}
)

var zero = Token("0") // the tokens of the other digits follow it

// neighbor returns the cell that a move from another leads to, and whether there is
// one: it is not beyond the edge.
func neighbor(cell, move int) (next int, ok bool) {
	row, column := cell/gridSide+moveRow[move], cell%gridSide+moveColumn[move]
	return row*gridSide + column, min(row, column) >= 0 && max(row, column) < gridSide
}

// place returns the row and the column of a cell, counted from the digit first.
func place(cell int, first int32) []int32 {
	return []int32{first + int32(cell/gridSide), first + int32(cell%gridSide)}
}
