package bench;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelHandlerContext;
import io.netty.handler.codec.ByteToMessageDecoder;
import io.netty.handler.codec.CorruptedFrameException;
import java.nio.charset.StandardCharsets;
import java.util.List;

/** Each "Ping" is answered by a "Pong". */
final class PingHandler extends ByteToMessageDecoder {
    private static final int PING = 0x50696e67;
    private static final ByteBuf PONG =
            Unpooled.unreleasableBuffer(Unpooled.directBuffer(4).writeBytes("Pong".getBytes(StandardCharsets.US_ASCII)));

    @Override
    protected void decode(ChannelHandlerContext context, ByteBuf in, List<Object> out) {
        while (in.readableBytes() >= 4) {
            if (in.readInt() != PING) {
                throw new CorruptedFrameException("no ping");
            }
            context.write(PONG.duplicate(), context.voidPromise());
        }
    }

    @Override
    public void channelReadComplete(ChannelHandlerContext context) throws Exception {
        context.flush();
        super.channelReadComplete(context);
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        context.close();
    }
}
