package admin

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
)

// A GapLog is what is shown of the gap log, in the order in which gaps were found.
type GapLog struct {
	Gaps []Gap `json:"gaps"`
	// Error says that some entries cannot be read, and why.
	Error string `json:"error,omitempty"`
}

// ServeGaps answers GET requests with the gap log as JSON: 200 with what can be read, 503 with code and remedy where nothing can.
func ServeGaps(keeper checkpoint.GapKeeper) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		gaps, err := keeper.Gaps(r.Context())
		if err != nil && len(gaps) == 0 {
			refuse(w, err)
			return
		}
		log := GapLog{Gaps: ShowGaps(gaps)}
		if err != nil {
			log.Error = err.Error()
		}
		_ = json.NewEncoder(w).Encode(log) // the client may have gone
	})
}

// refuse answers with why nothing can be told.
func refuse(w http.ResponseWriter, err error) {
	said := struct {
		Code    fault.Code `json:"code,omitempty"`
		Message string     `json:"message"`
		Remedy  string     `json:"remedy,omitempty"`
	}{Message: err.Error()}
	if f, ok := errors.AsType[*fault.Error](err); ok {
		said.Code, said.Message, said.Remedy = f.Code, f.Err.Error(), f.Remedy()
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	_ = json.NewEncoder(w).Encode(said) // the client may have gone
}
