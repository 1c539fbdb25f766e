module github.com/mongostream/streamer/docs/site

go 1.26

require github.com/yuin/goldmark v1.8.7
