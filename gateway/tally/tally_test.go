package tally_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/gateway/tally"
)

func TestOneIsToldAtOnceAndTheOthersOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tellings := make(chan string, 100)
		start := time.Now()
		c := tally.New(func(text string, last error) {
			tellings <- fmt.Sprint(time.Since(start), " ", text, " ", last)
		})
		c.Add(errors.New("first"))
		time.Sleep(500 * time.Microsecond)
		for i := range 2500 { // two and a half seconds
			time.Sleep(time.Millisecond)
			c.Add(fmt.Errorf("e%d", i))
		}
		time.Sleep(time.Minute)
		c.Add(errors.New("late"))
		synctest.Wait()
		close(tellings)
		var told []string
		for text := range tellings {
			told = append(told, text)
		}
		want := []string{
			"0s first first", "1s 999 events, the last one: e998 e998", "2s 1000 events, the last one: e1998 e1998", "3s 501 events, the last one: e2499 e2499",
			"1m2.5005s late late",
		}
		if !slices.Equal(told, want) {
			t.Errorf("%q", told)
		}
	})
}
