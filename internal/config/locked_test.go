package config

import (
	"testing"

	"github.com/mongostream/streamer/fault"
)

// What would hide failures cannot be configured.
func TestLockedSettingsOfTheSupervisorAreRefused(t *testing.T) {
	for setting, want := range map[string]fault.Code{
		"STREAMER_SUPERVISOR_HEARTBEAT_INTERVAL=400s":        fault.ParameterLocked,
		"STREAMER_SUPERVISOR_HEARTBEAT_INTERVAL=300s":        "",
		"STREAMER_SUPERVISOR_HEARTBEAT_INTERVAL=1ms":         fault.ConfigBadValue,
		"STREAMER_SUPERVISOR_MISSED_HEARTBEATS_TO_ALERT=11":  fault.ParameterLocked,
		"STREAMER_SUPERVISOR_MISSED_HEARTBEATS_TO_ALERT=10":  "",
		"STREAMER_SUPERVISOR_MISSED_HEARTBEATS_TO_ALERT=0":   fault.ConfigBadValue,
		"STREAMER_SUPERVISOR_PAGE_ON_FAILURE=false":          fault.ParameterLocked,
		"STREAMER_SUPERVISOR_AUTO_RESTART=false":             "",
		"STREAMER_SUPERVISOR_PING_URL=http://127.0.0.1/ping": "",
	} {
		_, err := Load("", []string{setting, "STREAMER_NODE_ID=n"})
		if fault.Of(err) != want {
			t.Errorf("%s: %v, want %q", setting, err, want)
		}
	}
}
