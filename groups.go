package reweight

import (
	"fmt"
	"slices"
)

// groupsOf numbers the groups of the batch's trajectories 0, 1, ... by
// ascending id: index(s) of the result is trajectory s's group.
func (ws *Workspace) groupsOf(b *Batch) (groupIndex, error) {
	if S := b.Trajectories(); len(b.GroupIDs) != S {
		return nil, fmt.Errorf("reweight: len(GroupIDs) = %d, want %d trajectories", len(b.GroupIDs), S)
	}
	ws.groups = append(ws.groups[:0], b.GroupIDs...)
	slices.Sort(ws.groups)
	ws.groups = slices.Compact(ws.groups)
	return ws.groups, nil
}

// groupIndex holds the distinct group ids in ascending order.
type groupIndex []int32

func (g groupIndex) of(id int32) int {
	i, _ := slices.BinarySearch(g, id)
	return i
}
