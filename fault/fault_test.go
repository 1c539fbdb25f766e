package fault_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mongostream/streamer/fault"
)

func TestEveryEntryIsCompleteAndInOrder(t *testing.T) {
	entries := fault.Catalogue()
	form := regexp.MustCompile(`^STRM(-[A-Z]+)+$`)
	if !slices.IsSortedFunc(entries, func(a, b fault.Entry) int { return strings.Compare(string(a.Code), string(b.Code)) }) {
		t.Error("the catalogue is not in the order of its codes")
	}
	for i, e := range entries {
		if !form.MatchString(string(e.Code)) || e.Summary == "" || e.Meaning == "" || e.Remedy == "" {
			t.Errorf("entry %d (%s) is incomplete", i, e.Code)
		}
		if i > 0 && entries[i-1].Code == e.Code {
			t.Errorf("%s stands twice", e.Code)
		}
	}
}

func TestFaultTellsCodeCauseAndRemedy(t *testing.T) {
	cause := errors.New("held by node a")
	err := fmt.Errorf("claim partitions: %w", fault.New(fault.NodeRunning, cause))
	if fault.Of(err) != fault.NodeRunning || !errors.Is(err, cause) {
		t.Errorf("code %q, cause kept %v", fault.Of(err), errors.Is(err, cause))
	}
	f, _ := errors.AsType[*fault.Error](err)
	if !strings.Contains(f.Remedy(), "--take-over") {
		t.Errorf("remedy %q", f.Remedy())
	}
	if fault.Of(cause) != "" {
		t.Error("an error without a code has one")
	}
}

func TestCodeOutsideTheCatalogueIsABrokenInvariant(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	_ = fault.New("STRM-NO-SUCH", errors.New("x"))
}
