package admin

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/notice"
)

// An AuditLog lists connections to the nodes of a cluster and actions of operators, as a node knows
// them: oldest first.
type AuditLog struct {
	Records []notice.Notice `json:"records"`
}

// ServeAudit answers GET requests with the audit log as JSON: 200, and 403 to identities that may
// not read everything.
func ServeAudit(board *notice.Board) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if i := access.From(r.Context()); !i.Operates() {
			access.Refuse(w, http.StatusForbidden, fault.Newf(fault.AccessForbidden, "the audit log needs the right to every namespace"))
			return
		}
		log := AuditLog{Records: []notice.Notice{}}
		all, _ := board.Since(0)
		for _, n := range all {
			if n.Channel == notice.Audit {
				log.Records = append(log.Records, n)
			}
		}
		answer(w, http.StatusOK, log)
	})
}

// OperatedNotice returns the record of the audit log that an operator has confirmed a command, with
// its arguments. Text that cannot be printed in one line is quoted: the name of a collection may
// have control characters, and logs and terminals show the record.
func OperatedNotice(by, command string, arguments []string) notice.Notice {
	arguments = slices.Clone(arguments)
	for i, a := range arguments {
		if !utf8.ValidString(a) || strings.ContainsFunc(a, func(r rune) bool { return !unicode.IsPrint(r) }) {
			arguments[i] = strconv.Quote(a)
		}
	}
	text := strings.Join(append([]string{by, "has confirmed:", command}, arguments...), " ")
	return notice.Notice{
		Channel: notice.Audit, Kind: notice.KindOperated, Level: notice.Info, Node: by, Text: text,
		Fields: map[string]any{"by": by, "command": command, "arguments": arguments},
	}
}
