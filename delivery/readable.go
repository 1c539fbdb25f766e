package delivery

import "github.com/mongostream/streamer/change"

// readable returns the part of a list of namespaces that the session may know of.
func (s *Session) readable(namespaces []string) (readable []string, some bool) {
	if s.cfg.Readable == nil {
		return namespaces, true
	}
	return s.cfg.Readable(namespaces)
}

// hide returns a Writer that removes a namespace which the session must not know from the event: a
// rename goes to the subscribers of its source and of its target. For any other event it is w.
func (s *Session) hide(e *change.Event, w *Writer) *Writer {
	if s.cfg.Readable == nil || len(e.ToDB()) == 0 {
		return w
	}
	_, from := s.readable([]string{change.Namespace{DB: string(e.DB()), Coll: string(e.Coll())}.String()})
	_, to := s.readable([]string{change.Namespace{DB: string(e.ToDB()), Coll: string(e.ToColl())}.String()})
	if from && to {
		return w
	}
	var hidden []byte
	for raw, at := e.Raw(), 4; ; {
		name, v, next, err := change.Element(raw, at)
		if err != nil || name == nil {
			break
		}
		at = next
		switch string(name) {
		case "ns":
			if !from {
				continue
			}
		case "to", "operationDescription":
			if !to {
				continue
			}
		}
		hidden = change.AppendElement(hidden, v.Type, string(name), v.Data)
	}
	other := e.Over(change.WrapDocument(hidden)) // a Writer reads nothing but the bytes
	w = &Writer{}
	w.Next(&other)
	return w
}
