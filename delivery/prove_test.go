//go:build prove

package delivery_test

import (
	"testing"
	"time"
)

// provingFor is how long each property is tried.
const provingFor = 10 * time.Minute

func TestProveDocumentsLeave(t *testing.T) { during(t, provingFor, documentsLeave) }

func TestProveSnapshotsMeetTheirChanges(t *testing.T) {
	during(t, provingFor, snapshotsMeetTheirChanges)
}

func TestProveMovedSnapshotsMeetTheirChanges(t *testing.T) {
	during(t, provingFor, movedSnapshotsMeetTheirChanges)
}
