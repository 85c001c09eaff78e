package gpu

import (
	"fmt"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/problem"
	"github.com/seed621a2839/reweight/internal/raw"
)

// Check waits until all that was queued on the workspace's stream is done and returns
// what was found wrong on the device since the last Check: an *reweight.InputError with
// the text of the CPU's, about one of the elements that are wrong, or an error of the
// driver. While the stream is captured, Check cannot wait, and says so.
func (ws *Workspace) Check() error {
	if ws.memory == 0 {
		return errClosed
	}
	if err := ws.dev.notCaptured(ws.stream, problem.CapturedWait); err != nil {
		return err
	}
	if err := Download(ws.dev, ws.found[:], ws.status, ws.stream); err != nil {
		return fmt.Errorf("gpu: %w", err)
	}
	s := &ws.found[0]
	if s.Code == 0 {
		return nil
	}
	if err := ws.dev.drv.Fill(ws.status, 0, len(raw.Bytes(ws.found[:])), ws.stream); err != nil {
		return fmt.Errorf("gpu: %w", err)
	}
	arg, text, ok := s.Read(nil)
	if !ok {
		return fmt.Errorf("gpu: the device reports error %d, which is not known", s.Code)
	}
	return &reweight.InputError{Arg: arg.Go, Index: int(s.Index), Problem: text}
}
