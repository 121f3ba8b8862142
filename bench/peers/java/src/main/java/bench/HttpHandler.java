package bench;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.handler.codec.ByteToMessageDecoder;
import io.netty.handler.codec.TooLongFrameException;
import java.nio.charset.StandardCharsets;
import java.util.List;

/** One request, one answer, and the connection is closed. */
final class HttpHandler extends ByteToMessageDecoder {
    private static final int HEAD = 4096;
    private static final int END = 0x0d0a0d0a;
    private static final ByteBuf FAST = bytes("GET /test/fast");
    private static final ByteBuf ANSWER = bytes("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");

    private static ByteBuf bytes(String text) {
        byte[] bytes = text.getBytes(StandardCharsets.US_ASCII);
        return Unpooled.unreleasableBuffer(Unpooled.directBuffer(bytes.length).writeBytes(bytes)).asReadOnly();
    }

    @Override
    protected void decode(ChannelHandlerContext context, ByteBuf in, List<Object> out) {
        int length = in.readableBytes();
        if (length < 4 || in.getInt(in.writerIndex() - 4) != END) {
            if (length >= HEAD) {
                throw new TooLongFrameException("a request of " + length + " bytes");
            }
            return;
        }
        boolean fast = in.slice(in.readerIndex(), Math.min(length, FAST.readableBytes())).equals(FAST);
        int next = in.readerIndex() + FAST.readableBytes();
        in.skipBytes(length);
        if (fast && (in.getByte(next) == ' ' || in.getByte(next) == '\r')) {
            context.writeAndFlush(ANSWER.duplicate()).addListener(ChannelFutureListener.CLOSE);
        } else {
            context.close();
        }
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        context.close();
    }
}
