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

// What a driver says may name hosts and other tenants: clients are told the text of what is their
// own doing, and the catalogue's of the rest.
func TestClientsAreToldWhatIsTheirs(t *testing.T) {
	driver := errors.New("connection(10.1.2.3:27017[-4]) of tenant-b was closed")
	for _, tt := range []struct {
		err        error
		code       fault.Code
		text, free string
	}{
		{fault.Newf(fault.SessionBadRequest, "unknown parameter %q", "x"), fault.SessionBadRequest, `unknown parameter "x"`, ""},
		{fmt.Errorf("connect: %w", fault.New(fault.AccessForbidden, errors.New("own"))), fault.AccessForbidden, "own", ""},
		{fault.Newf(fault.CommandBadArgument, "subscriber %q is not connected", "s"), fault.CommandBadArgument, `subscriber "s" is not connected`, ""},
		{fault.New(fault.FilterInvalid, errors.New("line 1")), fault.FilterInvalid, "line 1", ""},
		{fault.New(fault.MongoUnreachable, driver), fault.MongoUnreachable, "", "10.1.2.3"},
		{fault.Newf(fault.CheckpointUnreadable, "load checkpoint of subscriber %q: %w", "tenant-b", driver), fault.CheckpointUnreadable, "", "tenant-b"},
		{fault.New(fault.EtcdUnreachable, driver), fault.EtcdUnreachable, "", "10.1.2.3"},
		{fault.New(fault.LogAhead, driver), fault.LogAhead, "", "10.1.2.3"},
		{driver, "", "the node could not serve the request; its log says why", "10.1.2.3"},
	} {
		code, text, remedy := fault.Public(tt.err)
		want := tt.text
		if entry, ok := fault.Lookup(tt.code); ok && want == "" {
			want = entry.Summary
		}
		if code != tt.code || text != want || (remedy == "") != (code == "") || tt.free != "" && strings.Contains(text, tt.free) {
			t.Errorf("%v: %s, %s, %s", tt.err, code, text, remedy)
		}
	}
}
