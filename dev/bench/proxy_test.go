package main

import (
	"testing"
	"testing/synctest"
	"time"
)

// A timer that is late does not slow a proxy down; a server that takes its time does.
func TestDoorKeepsItsPace(t *testing.T) {
	for name, tt := range map[string]struct{ late, read, idle time.Duration }{
		"as it should be":       {},
		"timers are late":       {late: 500 * time.Microsecond},
		"the server takes time": {read: 3 * time.Millisecond},
		"both":                  {late: 500 * time.Microsecond, read: 3 * time.Millisecond},
		"nobody was there":      {idle: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &proxy{ctx: t.Context(), rate: 1_000_000}
				if err := h.wait(1, time.Now()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(tt.idle)
				begun := time.Now()
				for range 1000 {
					since := time.Now()
					time.Sleep(tt.read)
					if err := h.wait(1000, since); err != nil {
						t.Fatal(err)
					}
					time.Sleep(tt.late)
				}
				took, least := time.Since(begun), time.Second+1000*tt.read
				if tt.idle > 0 {
					least -= mostLate
				}
				if took < least || took > least+2*tt.late {
					t.Errorf("took %v, want %v", took, least)
				}
			})
		})
	}
}
