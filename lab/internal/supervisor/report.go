package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// line is one message of the supervisor to the process that waits for the lab.
type line struct {
	Progress string `json:"progress,omitempty"`
	Ready    bool   `json:"ready,omitempty"`
	Error    string `json:"error,omitempty"`
}

// Reporter reports the progress of the start.
type Reporter struct {
	mu  sync.Mutex
	out io.Writer
}

// NewReporter reports to out.
func NewReporter(out io.Writer) *Reporter { return &Reporter{out: out} }

func (r *Reporter) send(l line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = json.NewEncoder(r.out).Encode(l) // the reader may have exited
}

// Progress reports a step.
func (r *Reporter) Progress(format string, args ...any) {
	r.send(line{Progress: fmt.Sprintf(format, args...)})
}

// Ready reports that everything runs.
func (r *Reporter) Ready() { r.send(line{Ready: true}) }

// Failed reports the error and returns it.
func (r *Reporter) Failed(err error) error {
	r.send(line{Error: err.Error()})
	return err
}

// Follow prints the progress. It returns nil when the lab is ready, or the error.
func Follow(in io.Reader, progress io.Writer) error {
	decoder := json.NewDecoder(in)
	for {
		var l line
		if err := decoder.Decode(&l); err != nil {
			return errors.New("the supervisor ended without a word")
		}
		switch {
		case l.Ready:
			return nil
		case l.Error != "":
			return errors.New(l.Error)
		default:
			fmt.Fprintln(progress, l.Progress)
		}
	}
}
