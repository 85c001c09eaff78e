//go:build !linux

package gate

import "time"

// cpuTime is not known here.
func (p *process) cpuTime() time.Duration { return 0 }
