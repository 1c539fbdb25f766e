package devmongotest

import (
	"strings"
	"sync"
)

// Pages holds up a snapshot: it lets so many pages of a collection's documents be read, and has the
// others wait until more may be. Its method Pass is for devmongo.Profile.BeforeReply.
type Pages struct {
	collection string
	mu         sync.Mutex
	cond       *sync.Cond
	left       int // that may still be read; negative: any number
}

// NewPages lets so many pages of a collection be read, whatever its database; negative: any number.
func NewPages(collection string, pages int) *Pages {
	p := &Pages{collection: collection, left: pages}
	p.cond = sync.NewCond(&p.mu)
	return p
}

// Admit sets how many pages may be read from now on; negative: any number.
func (p *Pages) Admit(pages int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = pages
	p.cond.Broadcast()
}

// Open lets all pages be read.
func (p *Pages) Open() { p.Admit(-1) }

// Pass waits until a page may be read, if the command reads one.
func (p *Pages) Pass(command, namespace string) {
	if command != "find" || !strings.HasSuffix(namespace, "."+p.collection) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.left == 0 {
		p.cond.Wait()
	}
	if p.left > 0 {
		p.left--
	}
}
