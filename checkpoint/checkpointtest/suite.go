package checkpointtest

import "testing"

// TestStore runs the suite. Open returns a new, empty store for every case and arranges for its end with t.Cleanup.
func TestStore(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	cases := []struct {
		name string
		run  func(h harness)
	}{
		{"every field of a mark comes back", testFields},
		{"every form of a position comes back", testPositions},
		{"a token too large to keep is kept as its time", testLargeToken},
		{"a token that nobody can read is kept as its time", testStrangeToken},
		{"what a caller does to its marks afterwards does not matter", testAliasing},
		{"where there is no mark there is ErrNoMark", testNoMark},
		{"marks are listed in the order of their partitions", testList},
		{"a deleted mark is gone and can be saved again", testDelete},
		{"nothing to save is no error", testSaveNothing},
		{"a save after the caller gave up is an error", testSaveCanceled},
		{"an older position is left out silently", testSaveOlder},
		{"a save repeated is no error", testSaveRepeated},
		{"a store that remembers nothing saves too", testSaveReopened},
		{"many marks are saved at once", testSaveMany},
		{"a save with an old epoch is fenced and touches nothing", testFenced},
		{"one fenced partition costs the others nothing", testFencedAmongMany},
		{"two epochs that save at once end with the higher one", testEpochsRace},
		{"a claim finds the marks and nothing where there is none", testClaim},
		{"a claim with an old epoch is fenced", testClaimFenced},
		{"the mark never moves back", testModel},
		{"damaged marks are refused and left as they are", testDamage},
		{"the first origin stands", testOrigin},
		{"of many founders all get the same origin", testOriginRace},
		{"an origin is completed once, and nobody notices", testBackend},
		{"of many who complete the origin all get the same one", testBackendRace},
		{"a late write undoes nothing", testLateWrite},
		{"a late first write undoes nothing", testLateFirstWrite},
		{"a write of a deposed owner that arrives late is lost", testLateDeposed},
		{"a save whose answer got lost is known as one's own", testLostAnswer},
		{"a save without a connection ends in time and can be repeated", testCut},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.run(harness{open(t), t}) })
	}
}
